/*
 * get_command: `plant-store get`.
 */
#ifndef PROGRAMS_GET_COMMAND_H
#define PROGRAMS_GET_COMMAND_H

/*
 * get_command_run(argc, argv):
 * Run the subcommand whose name is argv[0].  Return an exit status, after an
 * error was said on stderr.  The caller closes stdout.
 */
int get_command_run(int argc, char **argv);

#endif
