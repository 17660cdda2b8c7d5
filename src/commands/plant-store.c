/*
 * plant-store: the operator's command.  It runs the subcommand, and checks that
 * stdout was written.
 */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sysexits.h>

#include "command.h"
#include "ground/config.h"
#include "ground/fault.h"
#include "ground/log.h"

static const struct command *const subcommands[] = { &store_command_init,
	&token_command, &store_command_verify, &check_command,
	&store_command_backup, &recover_command, &query_command_stats,
	&query_command_metrics, &query_command_get, &query_command_export,
	&import_command, &store_command_schema };
#define SUBCOMMANDS (sizeof(subcommands) / sizeof(subcommands[0]))

static void
print_help(void)
{
	printf("Usage: plant-store SUBCOMMAND [ARGUMENT ...]\n"
	       "       plant-store SUBCOMMAND --help\n"
	       "       plant-store --help | --version\n"
	       "\n");
	for (size_t i = 0; i < SUBCOMMANDS; i++)
		printf("%-10s  %s\n", subcommands[i]->name,
		    subcommands[i]->summary);
	printf("%-10s  %s\n\n", "help", "show this, or that of a subcommand");
	config_print_help(stdout);
}

static int
run(int argc, char **argv)
{
	const char *word = argc > 0 ? argv[0] : "";
	char option[] = "--help";

	if (strcmp(word, "--version") == 0 || strcmp(word, "-V") == 0) {
		printf("plant-store %s\n", PLANT_STORE_VERSION);
		return EX_OK;
	}
	if (strcmp(word, "help") == 0 && argc > 1 && argv[1][0] != '-' &&
	    strcmp(argv[1], "help") != 0)
		return run(2, (char *[]){ argv[1], option, NULL });
	if (strcmp(word, "help") == 0 || strcmp(word, option) == 0 ||
	    strcmp(word, "-h") == 0) {
		print_help();
		return EX_OK;
	}
	for (size_t i = 0; i < SUBCOMMANDS; i++)
		if (strcmp(word, subcommands[i]->name) == 0)
			return command_run(subcommands[i], argc, argv);
	log_error("%s%s; see: plant-store --help",
	    argc == 0        ? "say which subcommand"
	    : word[0] == '-' ? "unknown option: "
			     : "unknown subcommand: ",
	    word);
	return EX_USAGE;
}

/* A full disk may be reported only now: the output is then incomplete. */
static int
close_output(int status)
{
	int broken = ferror(stdout);

	if (fclose(stdout) < 0)
		(void)fault_report("stdout", "the output is incomplete");
	else if (broken)
		log_error("stdout: the output is incomplete; check where it "
			  "goes");
	else
		return status;
	return EX_IOERR;
}

int
main(int argc, char **argv)
{
	/* A closed pipe is reported as an error, instead of a silent end. */
	signal(SIGPIPE, SIG_IGN);
	/* So is a file size limit: the signal would leave partial files. */
	signal(SIGXFSZ, SIG_IGN);
	log_open("plant-store", 0);
	config_warn_unknown();
	return close_output(run(argc - 1, argv + 1));
}
