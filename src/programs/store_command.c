/*
 * store_command: the arguments of verify and backup, and what they print.  The
 * work is the store's (copy).
 */
#include "store_command.h"

#include <getopt.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <sysexits.h>

#include "ground/config.h"
#include "ground/log.h"
#include "store/copy.h"
#include "store/verify.h"

static const char verify_usage[] =
    "Usage: plant-store verify [DIR]\n"
    "\n"
    "Check every line of a store's journal: checksum, form, chain and order.\n"
    "The service may go on meanwhile.  Exit status 0 only if all holds; 65 if\n"
    "the journal is damaged, with the offset and why.\n"
    "\n"
    "  DIR     the store's directory, or that of a backup (PLANT_STORE_DIR, "
    "or\n"
    "          /var/lib/plant-store)\n"
    "  --help  show this\n";

static const char backup_usage[] =
    "Usage: plant-store backup [--dir DIR] DEST\n"
    "\n"
    "Copy a store's journal to the directory DEST, checked on its way: every\n"
    "plant that was acknowledged before the call.  The service may go on\n"
    "meanwhile.  If DEST has an earlier backup of the same store, what is new\n"
    "is added to it.  A backup is a store: to restore it, copy its\n"
    "plants.jsonl into an empty directory for the service.\n"
    "\n"
    "  --dir DIR  the store's directory (PLANT_STORE_DIR, or\n"
    "             /var/lib/plant-store)\n"
    "  --help     show this\n";

struct arguments {
	const char *dir;
	const char *operand; /* NULL if there is none */
};

static int
usage_error(const char *command, const char *what)
{
	log_error("%s: %s; see: plant-store %s --help", command, what, command);
	return EX_USAGE;
}

/* EX_OK, or a status; `*helped`: the usage was printed, and that is all. */
static int
read_arguments(int argc, char **argv, const char *usage, bool takes_dir,
    struct arguments *arguments, bool *helped)
{
	static const struct option options[] = {
		{ "help", no_argument, NULL, 'h' },
		{ "dir", required_argument, NULL, 'd' },
		{ 0 },
	};
	struct config config;
	char error[512];
	int option;

	*helped = false;
	*arguments = (struct arguments){ 0 };
	optind = 0;
	opterr = 0;
	while ((option = getopt_long(argc, argv, "h",
		    takes_dir ? options
			      : (const struct option[]){ options[0], { 0 } },
		    NULL)) != -1) {
		if (option == 'h') {
			*helped = true;
			fputs(usage, stdout);
			return EX_OK;
		}
		if (option != 'd')
			return usage_error(argv[0], "unknown option");
		arguments->dir = optarg;
	}
	if (argc - optind > 1)
		return usage_error(argv[0], "too many arguments");
	if (optind < argc)
		arguments->operand = argv[optind];
	if (arguments->dir != NULL)
		return EX_OK;
	if (config_read(&config, error, sizeof(error)) < 0) {
		log_error("%s", error);
		return EX_CONFIG;
	}
	arguments->dir = config.dir;
	return EX_OK;
}

int
store_command_verify(int argc, char **argv)
{
	struct arguments arguments;
	struct verify_report report;
	bool helped;
	int status = read_arguments(
	    argc, argv, verify_usage, false, &arguments, &helped);

	if (status != EX_OK || helped)
		return status;
	if (arguments.operand != NULL)
		arguments.dir = arguments.operand;
	status = verify_store(arguments.dir, NULL, &report);
	if (status == EX_OK)
		printf("%s: store %s: %" PRIu64 " plants, %" PRIu64
		       " bytes, all valid\n",
		    arguments.dir, report.journal.store, report.journal.plants,
		    report.journal.bytes);
	return status;
}

int
store_command_backup(int argc, char **argv)
{
	struct arguments arguments;
	struct copy_report report;
	bool helped;
	int status =
	    read_arguments(argc, argv, backup_usage, true, &arguments, &helped);

	if (status != EX_OK || helped)
		return status;
	if (arguments.operand == NULL)
		return usage_error(argv[0], "say where to");
	status = copy_backup(arguments.dir, arguments.operand, NULL, &report);
	if (status == EX_OK)
		printf("%s: store %s: %" PRIu64 " plants, %" PRIu64
		       " bytes, %" PRIu64 " of them new\n",
		    arguments.operand, report.store, report.plants,
		    report.bytes, report.added);
	return status;
}
