/* responder: plant-store.fcgi, a FastCGI service or a CGI program. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sysexits.h>
#include <unistd.h>

#include "gateway.h"
#include "ground/config.h"
#include "ground/log.h"

#define SERVE (-1) /* instead of an exit status: serve */

static const char help[] =
    "plant-store.fcgi answers POST {base_url}/plants: it stores a plant and\n"
    "answers 200 once it is on the disk.\n"
    "\n"
    "A web server or supervisor starts it: as FastCGI with a listening socket\n"
    "as descriptor 0, or as CGI with REQUEST_METHOD in its environment.\n"
    "\n"
    "  --help     show this and exit\n"
    "  --version  show the version and exit\n"
    "\n";

/* Return whether descriptor 0 is a listening socket (FastCGI 1.0, 2.2). */
static bool
is_fastcgi(void)
{
	struct sockaddr_storage peer;
	socklen_t len = sizeof(peer);

	return getpeername(STDIN_FILENO, (struct sockaddr *)&peer, &len) < 0 &&
	       errno == ENOTCONN;
}

/*
 * A core dump would contain clients' tokens.  A limit of 1, unlike 0, also
 * stops dumps that are piped to a program (core(5)), and prlimit(1) can raise
 * it.  If the hard limit is 0, it forbids 1: make the process undumpable.
 */
static void
forbid_core(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_CORE, &limit) == 0) {
		if (limit.rlim_max < 1 && prctl(PR_SET_DUMPABLE, 0) == 0)
			return;
		limit.rlim_cur = 1;
		if (setrlimit(RLIMIT_CORE, &limit) == 0)
			return;
	}
	log_warning("cannot disable core dumps: %s", strerror(errno));
}

/*
 * Return an exit status, or SERVE.  The arguments of a CGI request are ignored:
 * Apache passes words of the query string in them (RFC 3875, section 4.4), for
 * every method, and a client must not choose what the program does.
 */
static int
read_arguments(int argc, char **argv, bool as_cgi)
{
	if (as_cgi ? getenv("REQUEST_METHOD") != NULL : argc == 1)
		return SERVE;
	if (argc == 2 && strcmp(argv[1], "--help") == 0) {
		fputs(help, stdout);
		config_print_help(stdout);
	} else if (argc == 2 && strcmp(argv[1], "--version") == 0)
		printf("plant-store.fcgi " PLANT_STORE_VERSION "\n");
	else {
		fputs("plant-store.fcgi: a web server or supervisor starts "
		      "this, without arguments; see --help\n",
		    stderr);
		return EX_USAGE;
	}
	return fflush(stdout) == EOF || ferror(stdout) ? EX_IOERR : EX_OK;
}

int
main(int argc, char **argv)
{
	const char *form = getenv("PLANT_STORE_STATUS");
	/* Even with invalid settings, this one sets the error's status. */
	struct config config = { .base_path = "",
		.contract_status =
		    form != NULL && strcmp(form, "contract") == 0 };

	log_open("plant-store.fcgi", 1);
	const bool as_cgi = !is_fastcgi();
	int status = read_arguments(argc, argv, as_cgi);
	if (status != SERVE)
		return status;
	if (as_cgi)
		cgi_begin();
	forbid_core();
	if (config_read(&config) != FAULT_NONE) {
		if (as_cgi)
			(void)cgi_serve(&config);
		return EX_CONFIG;
	}
	log_level_max = config.log_level;
	config_warn_unknown();
	return as_cgi ? cgi_serve(&config) : service_run(&config);
}
