/*
 * import_command: `plant-store import`, many plants into a store at once.
 */
#ifndef PROGRAMS_IMPORT_COMMAND_H
#define PROGRAMS_IMPORT_COMMAND_H

/*
 * import_command_run(argc, argv):
 * Run the subcommand; argv[0] is its name.  Return the exit status; all is
 * printed and logged.
 */
int import_command_run(int argc, char **argv);

#endif
