/*
 * export_command: `plant-store export`.
 */
#ifndef PROGRAMS_EXPORT_COMMAND_H
#define PROGRAMS_EXPORT_COMMAND_H

/*
 * export_command_run(argc, argv):
 * Run the subcommand whose name is argv[0].  Return an exit status, after an
 * error was said on stderr.  The caller closes stdout.
 */
int export_command_run(int argc, char **argv);

#endif
