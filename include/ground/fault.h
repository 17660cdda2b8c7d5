/*
 * fault: why something could not be done with a file, and what helps.
 *
 * The one error type of the store.  The reason is logged where it is found,
 * with what an operator can do about it; a caller only decides what follows.
 */
#ifndef GROUND_FAULT_H
#define GROUND_FAULT_H

#include <stdbool.h>

enum fault {
	FAULT_NONE,
	FAULT_STOPPED, /* the watch ended the work; not logged */
	FAULT_BUSY,    /* another process holds the store */
	FAULT_MEMORY,  /* no memory or no descriptor */
	FAULT_FULL,    /* no room on the disk */
	FAULT_ABSENT,  /* there is no store or file */
	FAULT_SETUP,   /* another store's, or of an unknown version */
	FAULT_RIGHTS,  /* not allowed by the system */
	FAULT_OUTPUT,  /* the destination cannot be used */
	FAULT_NAME,    /* a token's name is taken or unknown */
	FAULT_DAMAGED, /* the journal is damaged */
	FAULT_FAILED   /* an I/O error, or the store has failed */
};

/*
 * fault_of(error), fault_remedy(error):
 * The fault that an errno value is; what helps, static English that begins with
 * "; ", or "".
 *
 * fault_passes(fault):
 * Whether the same request may succeed later without an operator's help.
 *
 * fault_report(name, what):
 * Log "name: what: ", the meaning of errno, and the remedy.  Return the fault;
 * errno stays.
 *
 * fault_status(fault):
 * The exit status of sysexits.h that a fault is, in every program.
 */
enum fault fault_of(int error);
const char *fault_remedy(int error);
bool fault_passes(enum fault fault);
enum fault fault_report(const char *name, const char *what);
int fault_status(enum fault fault);

#endif
