/*
 * responder: plant-store.fcgi, FastCGI or CGI, whichever started it.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sysexits.h>

#include "gateway/cgi.h"
#include "gateway/service.h"
#include "ground/config.h"
#include "ground/log.h"

/* Not a status of sysexits.h. */
#define SERVE (-1)

static const char help[] =
    "plant-store.fcgi answers POST {base_url}/plants: it stores a plant and\n"
    "says 200 once it is on the disk.\n"
    "\n"
    "A web server or supervisor starts it, without arguments: as FastCGI with\n"
    "a listening socket as descriptor 0, or as CGI with REQUEST_METHOD in its\n"
    "environment.\n"
    "\n"
    "Settings, from the environment:\n"
    "  PLANT_STORE_DIR             the store's directory\n"
    "                              (/var/lib/plant-store)\n"
    "  PLANT_STORE_TOKENS          the token file (/etc/plant-store/tokens)\n"
    "  PLANT_STORE_BASE_PATH       path before /plants, such as /api/v1 ()\n"
    "  PLANT_STORE_BODY_BYTES_MAX  largest body, 64 to 1048576 (65536)\n"
    "  PLANT_STORE_THREADS         reactors, 1 to 64 (one for two CPUs)\n"
    "  PLANT_STORE_STATUS          http, or contract: every failure that it\n"
    "                              answers is 400 (http)\n"
    "  PLANT_STORE_LOG_LEVEL       error, warning, info or debug (info)\n"
    "\n"
    "Options:\n"
    "  --help     show this and exit\n"
    "  --version  show the version and exit\n"
    "\n"
    "Exit status: 0 on success, else one of sysexits.h, and the reason on\n"
    "stderr and in syslog.  Tokens are made with 'plant-store token add'.\n";

static int
print(const char *text)
{
	return fputs(text, stdout) == EOF || fflush(stdout) == EOF ? EX_IOERR
								   : EX_OK;
}

/*
 * A core would hold the tokens of clients; prlimit(1) can allow it again.  To a
 * program that takes cores from a pipe the kernel gives them whatever the limit
 * is, but for 1 (core(5), fs/coredump.c), which is too little for a file too.
 * Where a hard limit of 0 rules that out, none is to be made at all.
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
	log_warning("cannot forbid core dumps: %s", strerror(errno));
}

/*
 * What the arguments ask for: the exit status, or SERVE.  Those of a request
 * are words of its query (RFC 3875, section 4.4), which Apache passes on for
 * every method: whoever sends it must not choose what we do.
 */
static int
read_arguments(int argc, char **argv, bool as_cgi)
{
	if (as_cgi && getenv("REQUEST_METHOD") != NULL)
		return SERVE;
	if (argc == 2 && strcmp(argv[1], "--help") == 0)
		return print(help);
	if (argc == 2 && strcmp(argv[1], "--version") == 0)
		return print("plant-store.fcgi " PLANT_STORE_VERSION "\n");
	if (argc == 1 && !as_cgi)
		return SERVE;
	fputs("plant-store.fcgi: a web server or supervisor starts this, "
	      "without arguments; see --help\n",
	    stderr);
	return EX_USAGE;
}

int
main(int argc, char **argv)
{
	struct config config;
	char error[512];
	bool as_cgi;
	int status;

	log_open("plant-store.fcgi", 1);
	as_cgi = !service_is_fastcgi();
	status = read_arguments(argc, argv, as_cgi);
	if (status != SERVE)
		return status;
	forbid_core();
	if (config_read(&config, error, sizeof(error)) < 0) {
		log_error("%s", error);
		if (as_cgi)
			cgi_refuse();
		return EX_CONFIG;
	}
	log_set_level(config.log_level);
	if (!as_cgi)
		return service_run(&config);
	/* A limit or a server that has gone must not end us: errno says it. */
	signal(SIGXFSZ, SIG_IGN);
	signal(SIGPIPE, SIG_IGN);
	return cgi_serve(&config);
}
