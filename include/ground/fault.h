/*
 * fault: the only error type, and remedies for operators.  The function that
 * detects an error logs it with its remedy, unless its contract states
 * otherwise; its callers only act on it.
 */
#pragma once

#include <stdbool.h>

enum fault {
	FAULT_NONE,
	FAULT_STOPPED, /* the watch stopped the work; not logged */
	FAULT_BUSY,    /* another process holds the store */
	FAULT_MEMORY,  /* out of memory or descriptors */
	FAULT_FULL,    /* the disk is full */
	FAULT_ABSENT,  /* there is no store or file */
	FAULT_SETUP,   /* wrong settings, store or version */
	FAULT_RIGHTS,  /* permission denied, or mounted read-only */
	FAULT_OUTPUT,  /* the destination cannot be used */
	FAULT_NAME,    /* a token's name is taken or unknown */
	FAULT_DAMAGED, /* stored data is damaged */
	FAULT_FAILED   /* an I/O error, or the store has failed */
};

/*
 * fault_of(error), fault_remedy(error):
 * Return the fault for an errno value.  Return its remedy, static English that
 * begins with "; ", or "" if there is none.
 *
 * fault_passes(fault), fault_status(fault):
 * Return whether the same request may succeed later without an operator's help.
 * Return the exit status that every program uses for the fault (sysexits.h).
 *
 * fault_report(name, what):
 * Log `name`, `what`, errno and its remedy; return the fault.  Preserve errno.
 *
 * fault_ignore_signals():
 * Ignore SIGPIPE and SIGXFSZ: writes then fail with EPIPE or EFBIG.  Ignore
 * SIGTSTP, SIGTTIN and SIGTTOU: a stopped process would keep the store's lock.
 */
enum fault fault_of(int error);
const char *fault_remedy(int error);
bool fault_passes(enum fault fault);
enum fault fault_report(const char *name, const char *what);
int fault_status(enum fault fault);
void fault_ignore_signals(void);
