/*
 * plant-store: the operator's command.  It finds the subcommand and makes sure
 * that what was printed has arrived; everything else is the subcommand's.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <unistd.h>

#include "ground/log.h"
#include "check_command.h"
#include "export_command.h"
#include "get_command.h"
#include "import_command.h"
#include "stats_command.h"
#include "store_command.h"
#include "token_command.h"

static const struct subcommand {
	const char *name;
	const char *summary;
	int (*run)(int argc, char **argv);
} subcommands[] = {
	{ "token", "add, list and revoke the tokens of clients",
	    token_command_run },
	{ "verify", "check a store's journal and index", store_command_verify },
	{ "check", "check the set-up, and whether clients reach the service",
	    check_command_run },
	{ "backup", "copy a store while it is in use", store_command_backup },
	{ "recover", "make a new store of what a damaged one still has",
	    store_command_recover },
	{ "stats", "say what is in a store and how it fares",
	    stats_command_run },
	{ "get", "print plants by their ids", get_command_run },
	{ "export", "put out all plants, as JSON lines or CSV",
	    export_command_run },
	{ "import", "store the plants of a file", import_command_run },
};

static void
print_help(void)
{
	printf("Usage: plant-store SUBCOMMAND [ARGUMENT ...]\n"
	       "       plant-store SUBCOMMAND --help\n"
	       "       plant-store --help | --version\n"
	       "\n");
	for (size_t i = 0; i < sizeof subcommands / sizeof subcommands[0]; i++)
		printf(
		    "%-10s  %s\n", subcommands[i].name, subcommands[i].summary);
	printf("%-10s  %s\n", "help", "show this, or that of a subcommand");
}

static int
usage_error(const char *what, const char *value)
{
	log_error("%s%s; see: plant-store --help", what, value);
	return EX_USAGE;
}

/* Run the subcommand whose name is argv[0]. */
static int
run_subcommand(int argc, char **argv)
{
	if (argc == 0)
		return usage_error("say which subcommand", "");
	if (strcmp(argv[0], "help") == 0) {
		char option[] = "--help";
		char *help[] = { argv[1], option, NULL };

		if (argc > 1 && argv[1][0] != '-' &&
		    strcmp(argv[1], "help") != 0)
			return run_subcommand(2, help);
		print_help();
		return EX_OK;
	}
	for (size_t i = 0; i < sizeof subcommands / sizeof subcommands[0]; i++)
		if (strcmp(argv[0], subcommands[i].name) == 0)
			return subcommands[i].run(argc, argv);
	return usage_error("unknown subcommand: ", argv[0]);
}

static int
run(int argc, char **argv)
{
	static const struct option options[] = {
		{ "help", no_argument, NULL, 'h' },
		{ "version", no_argument, NULL, 'v' },
		{ 0 },
	};

	opterr = 0;
	/* "+": what follows the subcommand's name is for the subcommand. */
	switch (getopt_long(argc, argv, "+h", options, NULL)) {
	case 'h':
		print_help();
		return EX_OK;
	case 'v':
		printf("plant-store %s\n", PLANT_STORE_VERSION);
		return EX_OK;
	case -1:
		return run_subcommand(argc - optind, argv + optind);
	default:
		return usage_error("unknown option: ", argv[optind - 1]);
	}
}

/* A full disk may show itself only now. */
static int
close_output(void)
{
	int broken = ferror(stdout);

	errno = 0;
	if (fclose(stdout) == 0 && !broken)
		return EX_OK;
	log_error("stdout: the output is incomplete%s%s; check where it goes",
	    errno == 0 ? "" : ": ", errno == 0 ? "" : strerror(errno));
	return EX_IOERR;
}

int
main(int argc, char **argv)
{
	int status;

	/* A reader that went away is an error to report, not a silent end. */
	signal(SIGPIPE, SIG_IGN);
	/* Nor a limit on files, which would leave what was begun. */
	signal(SIGXFSZ, SIG_IGN);
	log_open("plant-store", 0);
	status = run(argc, argv);
	return status == EX_OK ? close_output() : status;
}
