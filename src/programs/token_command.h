/*
 * token_command: `plant-store token`, the making and revoking of credentials.
 */
#ifndef PROGRAMS_TOKEN_COMMAND_H
#define PROGRAMS_TOKEN_COMMAND_H

/*
 * token_command_run(argc, argv):
 * Run the subcommand whose name is argv[0].  Return an exit status of
 * sysexits.h, after an error was said on stderr.  The caller closes stdout.
 */
int token_command_run(int argc, char **argv);

#endif
