/*
 * store_command: the arguments of verify, backup and recover, and what they
 * print.  The work is the store's (verify, copy, salvage).
 */
#include "store_command.h"

#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <sysexits.h>

#include "command.h"
#include "ground/log.h"
#include "store/copy.h"
#include "store/salvage.h"
#include "store/verify.h"

#define USAGE_PROGRESS                                                    \
	"  --quiet     show no progress\n"                                \
	"  --progress  show progress, also where stderr is no terminal\n" \
	"  --help      show this\n"

static const char verify_usage[] =
    "Usage: plant-store verify [--quiet | --progress] [DIR | FILE]\n"
    "\n"
    "Check every line of a store's journal: checksum, form, chain and order,\n"
    "and that the index holds what the journal holds.  The service may go on\n"
    "meanwhile.  Exit status 0 only if all holds; 65 if something is damaged,\n"
    "with the offset and why.\n"
    "\n"
    "  DIR         the store's directory, or that of a backup\n"
    "              (PLANT_STORE_DIR, or /var/lib/plant-store)\n"
    "  FILE        a journal, which nobody may be writing\n" USAGE_PROGRESS;

static const char backup_usage[] =
    "Usage: plant-store backup [--dir DIR] [--quiet | --progress] DEST\n"
    "\n"
    "Copy a store's journal to the directory DEST, checked on its way: every\n"
    "plant that was acknowledged before the call.  The service may go on\n"
    "meanwhile.  If DEST has an earlier backup of the same store, what is new\n"
    "is added to it.  A backup is a store: to restore it, stop the service\n"
    "(with systemd its socket, which would start it again), copy the backup's\n"
    "plants.jsonl into an empty directory, both owned by the service's user,\n"
    "and start the service with that directory.\n"
    "\n"
    "  --dir DIR   the store's directory (PLANT_STORE_DIR, or\n"
    "              /var/lib/plant-store)\n" USAGE_PROGRESS;

static const char recover_usage[] =
    "Usage: plant-store recover [--store UUID] [--quiet | --progress] SRC "
    "DEST\n"
    "\n"
    "Put every plant that can still be read of a damaged journal into a new\n"
    "store in the directory DEST, with the time and the token's name that it\n"
    "had, and print which bytes could not be read and why, and which lines\n"
    "are missing: at the end as far as SRC's index knows of them.  SRC is not\n"
    "changed; stop the service first.  Where there is a backup, restore that\n"
    "instead.  Exit status 0 if everything was readable; 65 if something was\n"
    "lost.\n"
    "\n"
    "The new store has a uuid of its own: it is another history than that of\n"
    "the old one and its backups, so begin a new backup of it.\n"
    "\n"
    "  SRC           the damaged store's directory, or a journal\n"
    "  --store UUID  the damaged store's uuid, where its first line is\n"
    "                damaged and there is no file `lock` beside it: it stands\n"
    "                in a backup's first line\n"
    "  --quiet       show no progress\n"
    "  --progress    show progress, also where stderr is no terminal\n"
    "  --help        show this\n";

enum { OPTION_STORE = COMMAND_OWN };

/* The end of a subcommand that was told to stop. */
static int
stopped(const char *name, const char *what)
{
	log_error("%s: stopped%s", name, what);
	return 128 + command_interrupted();
}

/* What holds of the index of the store in `dir`. */
static void
print_index(const char *dir, enum verify_index index)
{
	static const char *const texts[] = {
		[VERIFY_INDEX_EQUAL] = "holds the same plants",
		[VERIFY_INDEX_BEHIND] = "lacks the last plants; they are "
					"entered when the service next stores "
					"a plant or starts",
		[VERIFY_INDEX_NONE] = NULL,
		[VERIFY_INDEX_MISSING] = "missing; the index is built anew at "
					 "the next start",
		[VERIFY_INDEX_FOREIGN] =
		    "of another store, or from before the machine's last "
		    "start; the index is built anew at the next start",
		[VERIFY_INDEX_REPLACED] = "was replaced meanwhile, so not "
					  "compared",
	};

	if (texts[index] != NULL)
		printf("%s/index: %s\n", dir, texts[index]);
}

int
store_command_verify(int argc, char **argv)
{
	static const struct option options[] = {
		COMMAND_OPTION_HELP,
		COMMAND_OPTIONS_PROGRESS,
		{ 0 },
	};
	struct command command = { .name = argv[0], .usage = verify_usage };
	struct verify_report report;
	char how_far[96];
	int status;

	optind = 0;
	if (command_option(&command, argc, argv, options) != -1)
		return command.status;
	if (argc - optind > 1)
		return command_usage_error(&command, "too many arguments");
	if (optind < argc)
		command.dir = argv[optind];
	status = command_dir(&command);
	if (status != EX_OK)
		return status;
	struct watch watch = command_watch(&command, "verify");
	status = verify_store(command.dir, &watch, &report);
	command_unwatch();
	if (status == VERIFY_STOPPED) {
		snprintf(how_far, sizeof(how_far),
		    " after %" PRIu64 " plants, %" PRIu64
		    " bytes, valid so far",
		    report.journal.plants, report.journal.bytes);
		return stopped(command.dir, how_far);
	}
	if (status != EX_OK)
		return status;
	printf("%s: store %s: %" PRIu64 " plants, %" PRIu64
	       " bytes, all valid\n",
	    command.dir, report.journal.store, report.journal.plants,
	    report.journal.bytes);
	print_index(command.dir, report.index);
	return EX_OK;
}

int
store_command_backup(int argc, char **argv)
{
	static const struct option options[] = {
		COMMAND_OPTION_HELP,
		COMMAND_OPTION_DIR,
		COMMAND_OPTIONS_PROGRESS,
		{ 0 },
	};
	struct command command = { .name = argv[0], .usage = backup_usage };
	struct copy_report report;
	int status;

	optind = 0;
	if (command_option(&command, argc, argv, options) != -1)
		return command.status;
	if (argc - optind != 1)
		return command_usage_error(&command,
		    optind < argc ? "too many arguments" : "say where to");
	const char *dest = argv[optind];
	status = command_dir(&command);
	if (status != EX_OK)
		return status;
	struct watch watch = command_watch(&command, "backup");
	status = copy_backup(command.dir, dest, &watch, &report);
	command_unwatch();
	if (status == COPY_STOPPED)
		return stopped(dest,
		    "; it holds the earlier backup, or the new one "
		    "whole; run it again");
	if (status != EX_OK)
		return status;
	printf("%s: store %s: %" PRIu64 " plants, %" PRIu64 " bytes, %" PRIu64
	       " of them new\n",
	    dest, report.store, report.plants, report.bytes, report.added);
	return EX_OK;
}

static void
print_line(void *context, const char *line)
{
	(void)context;
	command_clear_bar();
	printf("%s\n", line);
}

static int
print_recovered(const char *dest, const struct salvage_report *report)
{
	printf("%s: store %s: %" PRIu64 " plants of store %s", dest,
	    report->store, report->plants, report->from);
	if (report->doubled > 0)
		printf(", %" PRIu64 " more that were doubled", report->doubled);
	if (report->lost_places == 0 && report->differing == 0) {
		printf("; everything was readable\n");
		return EX_OK;
	}
	printf("; lost: %" PRIu64 " of %" PRIu64 " bytes in %" PRIu64 " places",
	    report->lost_bytes, report->bytes, report->lost_places);
	if (report->differing > 0)
		printf(", %" PRIu64 " plants whose id is taken",
		    report->differing);
	printf("\n");
	if (fflush(stdout) == 0 && !ferror(stdout))
		return EX_DATAERR;
	log_error("stdout: the list of what was lost is incomplete; check "
		  "where it goes");
	return EX_IOERR;
}

int
store_command_recover(int argc, char **argv)
{
	static const struct option options[] = {
		COMMAND_OPTION_HELP,
		{ "store", required_argument, NULL, OPTION_STORE },
		COMMAND_OPTIONS_PROGRESS,
		{ 0 },
	};
	struct command command = { .name = argv[0], .usage = recover_usage };
	struct salvage_options salvage = { .tell = print_line };
	struct salvage_report report;
	int option, status;

	optind = 0;
	while ((option = command_option(&command, argc, argv, options)) ==
	       OPTION_STORE)
		salvage.uuid = optarg;
	if (option != -1)
		return command.status;
	if (argc - optind != 2)
		return command_usage_error(&command,
		    argc - optind > 2 ? "too many arguments"
				      : "say from where and where to");
	salvage.from = argv[optind];
	salvage.dest = argv[optind + 1];
	salvage.watch = command_watch(&command, "recover");
	status = salvage_store(&salvage, &report);
	command_unwatch();
	if (status == SALVAGE_STOPPED)
		return stopped(salvage.dest, "; no store was made");
	return status == EX_OK ? print_recovered(salvage.dest, &report)
			       : status;
}
