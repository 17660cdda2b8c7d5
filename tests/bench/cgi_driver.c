/*
 * cgi_driver: one request after another by plain CGI, as a web server starts
 * it: posix_spawn, an environment, the body on stdin.  The programs take turns.
 *
 * usage: cgi_driver COUNT FIRST_ID TOKEN OTHER_TOKEN PROGRAM...
 *
 * Each program is sent a plant with the good token, `create`, and one with the
 * other, `refuse`: the same start and end without the store.  Prints a line of
 * JSON for each program and kind: medians in microseconds until the answer's
 * end and until the process has ended, how many answers were right and not.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PROGRAMS_MAX 8
#define SETTING "PLANT_STORE_"
#define VARIABLES_MAX 32
#define TEXT_MAX 256

enum kind { CREATE, REFUSE, KINDS };

static const char *const kinds[KINDS] = { "create", "refuse" };
static const char *const expected[KINDS] = {
	"\r\n\r\n{\"name\":\"Fern\",\"tag\":\"indoor\"}",
	"\r\n\r\n{\"error\":1005,",
};

struct series {
	int64_t *answered_ns, *ended_ns;
	size_t right, wrong;
};

struct request {
	char length[TEXT_MAX], authorization[TEXT_MAX], body[TEXT_MAX];
	char *environment[VARIABLES_MAX];
};

extern char **environ;

static int64_t
now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

static void
fail(const char *what)
{
	perror(what);
	exit(EXIT_FAILURE);
}

static void
fill(struct request *request, int64_t id, const char *token)
{
	static char *fixed[] = { "GATEWAY_INTERFACE=CGI/1.1",
		"SERVER_PROTOCOL=HTTP/1.1", "SERVER_SOFTWARE=cgi_driver",
		"SERVER_NAME=127.0.0.1", "SERVER_PORT=80",
		"REMOTE_ADDR=127.0.0.1", "REQUEST_METHOD=POST",
		"SCRIPT_NAME=/plants", "REQUEST_URI=/plants",
		"CONTENT_TYPE=application/json" };
	size_t n = 0;

	snprintf(request->body, TEXT_MAX,
	    "{\"id\":%" PRId64 ",\"name\":\"Fern\",\"tag\":\"indoor\"}", id);
	snprintf(request->length, TEXT_MAX, "CONTENT_LENGTH=%zu",
	    strlen(request->body));
	snprintf(request->authorization, TEXT_MAX,
	    "HTTP_AUTHORIZATION=Bearer %s", token);
	for (size_t i = 0; i < sizeof(fixed) / sizeof(*fixed); i++)
		request->environment[n++] = fixed[i];
	request->environment[n++] = request->length;
	request->environment[n++] = request->authorization;
	for (char **each = environ; *each != NULL; each++)
		if (strncmp(*each, SETTING, strlen(SETTING)) == 0 &&
		    n < VARIABLES_MAX - 1)
			request->environment[n++] = *each;
	request->environment[n] = NULL;
}

static bool
has_answer(int fd, enum kind kind)
{
	char answer[4096];
	size_t len = 0;
	ssize_t n;

	while (len < sizeof(answer) - 1 &&
	       (n = read(fd, answer + len, sizeof(answer) - 1 - len)) > 0)
		len += (size_t)n;
	answer[len] = '\0';
	return strstr(answer, expected[kind]) != NULL;
}

/* One request; its body is in the pipe before the program starts. */
static void
run(char *program, const struct request *request, enum kind kind,
    struct series *series)
{
	posix_spawn_file_actions_t actions;
	char *argv[] = { program, NULL };
	size_t len = strlen(request->body), nth = series->right + series->wrong;
	int in[2], out[2], status;
	bool right;
	pid_t pid;

	if (pipe2(in, O_CLOEXEC) < 0 || pipe2(out, O_CLOEXEC) < 0 ||
	    write(in[1], request->body, len) != (ssize_t)len)
		fail("pipe");
	close(in[1]);
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, in[0], STDIN_FILENO);
	posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
	int64_t began = now_ns();
	if (posix_spawn(
		&pid, program, &actions, NULL, argv, request->environment) != 0)
		fail(program);
	close(out[1]);
	right = has_answer(out[0], kind);
	series->answered_ns[nth] = now_ns() - began;
	if (waitpid(pid, &status, 0) != pid)
		fail("waitpid");
	series->ended_ns[nth] = now_ns() - began;
	if (right && status == 0)
		series->right++;
	else
		series->wrong++;
	posix_spawn_file_actions_destroy(&actions);
	close(in[0]);
	close(out[0]);
}

static int
compare(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

	return (x > y) - (x < y);
}

static double
median_us(int64_t *ns, size_t n)
{
	qsort(ns, n, sizeof(*ns), compare);
	return (double)ns[n / 2] / 1000;
}

int
main(int argc, char **argv)
{
	static struct series all[PROGRAMS_MAX][KINDS];
	size_t count = argc < 6 ? 0 : strtoul(argv[1], NULL, 10);
	int programs = argc - 5;
	struct request request;

	if (count == 0 || programs > PROGRAMS_MAX) {
		fprintf(stderr, "usage: cgi_driver COUNT FIRST_ID TOKEN "
				"OTHER_TOKEN PROGRAM...\n");
		return EXIT_FAILURE;
	}
	int64_t id = strtoll(argv[2], NULL, 10);
	for (int p = 0; p < programs; p++)
		for (int k = 0; k < KINDS; k++) {
			struct series *series = &all[p][k];

			series->answered_ns = calloc(count, sizeof(int64_t));
			series->ended_ns = calloc(count, sizeof(int64_t));
			if (series->answered_ns == NULL ||
			    series->ended_ns == NULL)
				fail("calloc");
		}
	for (size_t i = 0; i < count; i++)
		for (int p = 0; p < programs; p++)
			for (enum kind k = CREATE; k < KINDS; k++) {
				fill(&request, id++, argv[3 + k]);
				run(argv[5 + p], &request, k, &all[p][k]);
			}
	for (int p = 0; p < programs; p++)
		for (int k = 0; k < KINDS; k++)
			printf("{\"program\":%d,\"kind\":\"%s\","
			       "\"answered_us\":%.1f,\"ended_us\":%.1f,"
			       "\"right\":%zu,\"wrong\":%zu}\n",
			    p, kinds[k],
			    median_us(all[p][k].answered_ns, count),
			    median_us(all[p][k].ended_ns, count),
			    all[p][k].right, all[p][k].wrong);
	return EXIT_SUCCESS;
}
