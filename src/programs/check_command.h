/*
 * check_command: `plant-store check`, whether the service can work as it is set
 * up, and whether clients reach it.
 */
#ifndef PROGRAMS_CHECK_COMMAND_H
#define PROGRAMS_CHECK_COMMAND_H

/*
 * check_command_run(argc, argv):
 * Run the subcommand whose name is argv[0].  Return an exit status of
 * sysexits.h, after an error was said on stderr.  The caller closes stdout.
 */
int check_command_run(int argc, char **argv);

#endif
