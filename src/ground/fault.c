/* fault: errno values and their remedies.  See ground/fault.h. */
#include "ground/fault.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sysexits.h>

#include "ground/log.h"

static const struct cause {
	int error;
	enum fault fault;
	const char *remedy;
} causes[] = {
	{ ENOSPC, FAULT_FULL, "; make room" },
	{ EDQUOT, FAULT_FULL, "; make room" },
	{ EFBIG, FAULT_FULL, "; make room" },
	{ ENOMEM, FAULT_MEMORY, "; raise its memory limit (RLIMIT_AS)" },
	{ EMFILE, FAULT_MEMORY, "; raise its limit on open files" },
	{ ENFILE, FAULT_MEMORY, "; raise the limit on open files" },
	{ EACCES, FAULT_RIGHTS, "; run this as its owner, or change its mode" },
	{ EPERM, FAULT_RIGHTS, "; run this as its owner, or change its mode" },
	{ EROFS, FAULT_RIGHTS,
	    "; mount it for writing, or let the unit write there: "
	    "ReadWritePaths= (systemctl edit plant-store)" },
	{ ENOENT, FAULT_ABSENT, "; check its name" },
	{ ENOTDIR, FAULT_ABSENT, "; check its name" },
	{ ELOOP, FAULT_ABSENT, "; check its name" },
	{ ENAMETOOLONG, FAULT_ABSENT, "; check its name" },
	{ ETIMEDOUT, FAULT_BUSY, "; another process uses it: try again" },
	{ ECANCELED, FAULT_STOPPED, "" },
	{ EIO, FAULT_FAILED, "; check the disk" },
	{ 0, FAULT_FAILED, "" },
};

static const struct cause *
find_cause(int error)
{
	const struct cause *cause = causes;

	while (cause->error != 0 && cause->error != error)
		cause++;
	return cause;
}

enum fault
fault_of(int error)
{
	return find_cause(error)->fault;
}

const char *
fault_remedy(int error)
{
	return find_cause(error)->remedy;
}

bool
fault_passes(enum fault fault)
{
	return fault == FAULT_FULL || fault == FAULT_MEMORY ||
	       fault == FAULT_BUSY;
}

enum fault
fault_report(const char *name, const char *what)
{
	enum fault fault = fault_of(errno);

	if (fault != FAULT_STOPPED)
		log_error("%s: %s: %s%s", name, what, strerror(errno),
		    fault_remedy(errno));
	return fault;
}

int
fault_status(enum fault fault)
{
	static const int statuses[] = {
		[FAULT_NONE] = EX_OK,
		[FAULT_STOPPED] = EX_TEMPFAIL,
		[FAULT_BUSY] = EX_TEMPFAIL,
		[FAULT_MEMORY] = EX_TEMPFAIL,
		[FAULT_FULL] = EX_TEMPFAIL,
		[FAULT_ABSENT] = EX_NOINPUT,
		[FAULT_SETUP] = EX_CONFIG,
		[FAULT_RIGHTS] = EX_NOPERM,
		[FAULT_OUTPUT] = EX_CANTCREAT,
		[FAULT_NAME] = EX_DATAERR,
		[FAULT_DAMAGED] = EX_DATAERR,
		[FAULT_FAILED] = EX_IOERR,
	};

	return statuses[fault];
}

void
fault_ignore_signals(void)
{
	static const int signals[] = { SIGPIPE, SIGXFSZ, SIGTSTP, SIGTTIN,
		SIGTTOU };

	for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++)
		signal(signals[i], SIG_IGN);
}
