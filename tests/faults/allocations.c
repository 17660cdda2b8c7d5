/*
 * allocations: lets a program's allocations fail.  For LD_PRELOAD.
 *
 * Only those count that the objects of ALLOC_FROM ask for, by the address that
 * malloc, calloc, realloc, posix_memalign, strdup and asprintf were called
 * from: names separated by colons, and the program itself.  Only in programs
 * whose name is in ALLOC_PROGRAMS.  Settings, from the environment:
 *
 *	ALLOC_TRACE=FILE     append a line for each: "number function object"
 *	ALLOC_PLAN=N,TIMES   the Nth fails, and those behind it, TIMES in all
 *	                     (0: for ever)
 *
 * The real functions are looked up, so that valgrind can have its own there.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define OBJECTS_MAX 8
#define TRACE_FD_MIN 201

static struct {
	bool on;
	int trace;
	unsigned long nth, times, count;
	struct {
		uintptr_t begin, end;
		char name[64];
	} objects[OBJECTS_MAX];
	int n;
} fault = { .trace = -1 };

/* Whether `name` begins with one of the words, separated by colons. */
static bool
is_named(const char *words, const char *name)
{
	while (words != NULL && *words != '\0') {
		size_t len = strcspn(words, ":");

		if (len > 0 && strncmp(name, words, len) == 0)
			return true;
		words += len + (words[len] == ':');
	}
	return false;
}

static const char *
base_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash != NULL ? slash + 1 : path;
}

/* The executable parts of the objects; the first of all is the program. */
static int
note_object(struct dl_phdr_info *info, size_t size, void *seen)
{
	bool program = (*(int *)seen)++ == 0;
	const char *name = program ? "program" : base_name(info->dlpi_name);

	(void)size;
	if (!program && !is_named(getenv("ALLOC_FROM"), name))
		return 0;
	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *part = &info->dlpi_phdr[i];
		uintptr_t begin = info->dlpi_addr + part->p_vaddr;

		if (part->p_type != PT_LOAD || (part->p_flags & PF_X) == 0 ||
		    fault.n == OBJECTS_MAX)
			continue;
		fault.objects[fault.n].begin = begin;
		fault.objects[fault.n].end = begin + part->p_memsz;
		snprintf(fault.objects[fault.n].name,
		    sizeof(fault.objects[0].name), "%s", name);
		fault.n++;
	}
	return 0;
}

/* What runs behind main, such as the counting of lines, is not the program. */
static void
stop(void)
{
	fault.on = false;
}

__attribute__((constructor)) static void
read_plan(void)
{
	const char *plan = getenv("ALLOC_PLAN"), *trace = getenv("ALLOC_TRACE");
	char path[PATH_MAX];
	ssize_t len = readlink("/proc/self/exe", path, sizeof(path) - 1);
	int seen = 0;

	if (len < 0)
		return;
	path[len] = '\0';
	if (!is_named(getenv("ALLOC_PROGRAMS"), base_name(path)))
		return;
	dl_iterate_phdr(note_object, &seen);
	if (trace != NULL) {
		int fd = (int)syscall(SYS_openat, AT_FDCWD, trace,
		    O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);

		fault.trace =
		    (int)syscall(SYS_fcntl, fd, F_DUPFD_CLOEXEC, TRACE_FD_MIN);
		syscall(SYS_close, fd);
	}
	if (plan != NULL &&
	    sscanf(plan, "%lu,%lu", &fault.nth, &fault.times) != 2)
		abort();
	fault.on = true;
}

/* Whether the allocation asked for at `caller` is to fail. */
static bool
fails(const char *function, const void *caller)
{
	uintptr_t at = (uintptr_t)caller;
	unsigned long number;
	int i;

	if (!fault.on)
		return false;
	for (i = 0; i < fault.n; i++)
		if (at >= fault.objects[i].begin && at < fault.objects[i].end)
			break;
	if (i == fault.n)
		return false;
	number = __atomic_add_fetch(&fault.count, 1, __ATOMIC_SEQ_CST);
	/* Not by the constructor: what runs last would come before it. */
	if (number == 1)
		atexit(stop);
	if (fault.trace >= 0) {
		char line[160];
		int len = snprintf(line, sizeof(line), "%lu %s %s\n", number,
		    function, fault.objects[i].name);

		syscall(SYS_write, fault.trace, line, (size_t)len);
	}
	if (fault.nth == 0 || number < fault.nth ||
	    (fault.times != 0 && number >= fault.nth + fault.times))
		return false;
	errno = ENOMEM;
	return true;
}

#define CALLER __builtin_return_address(0)

/* dlsym may allocate before we know what with: from here, never given back. */
static char early[4096];
static size_t early_used;

static void *
look_up(const char *name)
{
	return dlsym(RTLD_NEXT, name);
}

static void *
allocate_early(size_t len)
{
	char *at = early + early_used;

	early_used += (len + 15) & ~(size_t)15;
	return early_used <= sizeof(early) ? at : NULL;
}

void *
malloc(size_t len)
{
	static void *(*real)(size_t);

	if (real == NULL)
		*(void **)&real = look_up("malloc");
	return fails("malloc", CALLER) ? NULL : real(len);
}

void *
calloc(size_t n, size_t size)
{
	static void *(*real)(size_t, size_t);
	static bool looking;

	if (real == NULL) {
		if (looking)
			return allocate_early(n * size);
		looking = true;
		*(void **)&real = look_up("calloc");
	}
	return fails("calloc", CALLER) ? NULL : real(n, size);
}

void *
realloc(void *old, size_t len)
{
	static void *(*real)(void *, size_t);

	if (real == NULL)
		*(void **)&real = look_up("realloc");
	return fails("realloc", CALLER) ? NULL : real(old, len);
}

int
posix_memalign(void **out, size_t alignment, size_t len)
{
	static int (*real)(void **, size_t, size_t);

	if (real == NULL)
		*(void **)&real = look_up("posix_memalign");
	return fails("posix_memalign", CALLER) ? ENOMEM
					       : real(out, alignment, len);
}

void
free(void *old)
{
	static void (*real)(void *);

	if ((char *)old >= early && (char *)old < early + sizeof(early))
		return;
	if (real == NULL)
		*(void **)&real = look_up("free");
	real(old);
}

/* What libc allocates for its callers. */

char *
strdup(const char *text)
{
	size_t len = strlen(text) + 1;
	char *copy = fails("strdup", CALLER) ? NULL : malloc(len);

	return copy == NULL ? NULL : memcpy(copy, text, len);
}

static int
print(char **out, const char *format, va_list list)
{
	static int (*real)(char **, const char *, va_list);

	if (real == NULL)
		*(void **)&real = look_up("vasprintf");
	return real(out, format, list);
}

int
asprintf(char **out, const char *format, ...)
{
	va_list list;
	int len;

	if (fails("asprintf", CALLER))
		return -1;
	va_start(list, format);
	len = print(out, format, list);
	va_end(list);
	return len;
}

/* What fortification makes of asprintf. */
int __asprintf_chk(char **out, int flag, const char *format, ...);

int
__asprintf_chk(char **out, int flag, const char *format, ...)
{
	va_list list;
	int len;

	(void)flag;
	if (fails("asprintf", CALLER))
		return -1;
	va_start(list, format);
	len = print(out, format, list);
	va_end(list);
	return len;
}
