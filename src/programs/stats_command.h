/*
 * stats_command: `plant-store stats`.
 */
#ifndef PROGRAMS_STATS_COMMAND_H
#define PROGRAMS_STATS_COMMAND_H

/*
 * stats_command_run(argc, argv):
 * Run the subcommand whose name is argv[0].  Return an exit status, after an
 * error was said on stderr.  The caller closes stdout.
 */
int stats_command_run(int argc, char **argv);

#endif
