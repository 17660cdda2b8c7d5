/*
 * store_command: `plant-store verify`, `plant-store backup` and `plant-store
 * recover`.
 */
#ifndef PROGRAMS_STORE_COMMAND_H
#define PROGRAMS_STORE_COMMAND_H

/*
 * store_command_verify(argc, argv), store_command_backup(argc, argv),
 * store_command_recover(argc, argv):
 * Run the subcommand whose name is argv[0].  Return an exit status of
 * sysexits.h, after an error was said on stderr, or 128 and the number of the
 * signal that ended it.  The caller closes stdout.
 */
int store_command_verify(int argc, char **argv);
int store_command_backup(int argc, char **argv);
int store_command_recover(int argc, char **argv);

#endif
