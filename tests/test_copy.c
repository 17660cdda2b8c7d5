/* test_copy: a journal checked, and copied while it is in use. */
#include "store_fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fault_shim.h"
#include "store/copy.h"
#include "store/verify.h"
#include "store_parts.h"

/* The directory of the copy, within that of the store. */
#define DEST "copy"
#define COPY DEST "/" JOURNAL_NAME

#define NOBODY 65534

static enum fault
copy(const struct fixture *fixture, const struct watch *watch,
    struct copy_report *report)
{
	struct copy_report unused;
	char dest[80];

	snprintf(dest, sizeof(dest), "%s/" DEST, fixture->path);
	return copy_backup(
	    fixture->path, dest, watch, report == NULL ? &unused : report);
}

static void
copy_well(const struct fixture *fixture)
{
	assert_int_equal(copy(fixture, NULL, NULL), FAULT_NONE);
}

static void
renew_store(const struct fixture *fixture)
{
	fixture_remove(fixture, JOURNAL_NAME);
	fixture_remove_index(fixture);
	assert_int_equal(store_init(fixture->path), FAULT_NONE);
}

static bool
is_equal(const struct fixture *fixture)
{
	size_t len, copy_len;
	char *journal = fixture_read(fixture, JOURNAL_NAME, &len);
	char *copy = fixture_read(fixture, COPY, &copy_len);
	/* The room ahead is no part of a copy. */
	bool equal = copy_len <= len && memcmp(journal, copy, copy_len) == 0 &&
		     strspn(journal + copy_len, "\n") == len - copy_len;

	free(journal);
	free(copy);
	return equal;
}

static void
copy_of_a_store_in_use_equals_it(void **state)
{
	const struct fixture *fixture = *state;
	struct store *store = fixture_open(fixture, true);
	struct copy_report report;

	fixture_create(store, 1);
	fixture_create(store, 2);
	assert_int_equal(copy(fixture, NULL, &report), FAULT_NONE);
	assert_int_equal(report.copy.plants, 2);
	assert_int_equal(report.added, report.copy.bytes);
	assert_true(is_equal(fixture));
	fixture_create(store, 3);
	store_close(store);
}

static void
second_copy_reports_what_is_new(void **state)
{
	const struct fixture *fixture = *state;
	struct verify_report verified;
	struct copy_report first, second;
	char dest[80];

	fixture_make_store(fixture, false, 1, 2);
	assert_int_equal(copy(fixture, NULL, &first), FAULT_NONE);
	fixture_make_store(fixture, false, 3, 4);
	/* What a copy that was killed leaves is no obstacle. */
	fixture_write(fixture, COPY ".new", 0, "half", 4);
	assert_int_equal(copy(fixture, NULL, &second), FAULT_NONE);
	assert_int_equal(second.copy.plants, 4);
	assert_int_equal(second.added, second.copy.bytes - first.copy.bytes);
	assert_string_equal(second.copy.store, first.copy.store);
	assert_true(is_equal(fixture));
	assert_false(fixture_exists(fixture, COPY ".new"));
	snprintf(dest, sizeof(dest), "%s/" DEST, fixture->path);
	assert_int_equal(verify_store(dest, NULL, &verified), FAULT_NONE);
	assert_int_equal(verified.journal.plants, 4);
}

static void
copy_can_be_made_of_a_file(void **state)
{
	const struct fixture *fixture = *state;
	struct copy_report report;
	char dest[80], from[96];

	snprintf(dest, sizeof(dest), "%s/" DEST, fixture->path);
	snprintf(from, sizeof(from), "%s/" JOURNAL_NAME, fixture->path);
	fixture_make_store(fixture, false, 1, 2);
	assert_int_equal(copy_backup(from, dest, NULL, &report), FAULT_NONE);
	assert_int_equal(report.copy.plants, 2);
	assert_true(is_equal(fixture));
}

static void
copy_served_as_a_store_knows_its_plants(void **state)
{
	const struct fixture *fixture = *state;

	fixture_make_store(fixture, false, 1, 3);
	copy_well(fixture);
	renew_store(fixture);
	assert_int_equal(
	    renameat(fixture->dir, COPY, fixture->dir, JOURNAL_NAME), 0);
	fixture_reopen_and_expect(fixture, (const int64_t[]){ 1, 2, 3 }, 3);
}

/* `cp -al copy older`: generations that share a file. */
static void
hard_link_to_an_earlier_copy_keeps_its_bytes(void **state)
{
	const struct fixture *fixture = *state;
	size_t len;

	fixture_make_store(fixture, false, 1, 2);
	copy_well(fixture);
	assert_int_equal(mkdirat(fixture->dir, "older", 0700), 0);
	assert_int_equal(
	    linkat(fixture->dir, COPY, fixture->dir, "older/" JOURNAL_NAME, 0),
	    0);
	char *before = fixture_read(fixture, "older/" JOURNAL_NAME, &len);
	fixture_make_store(fixture, false, 3, 4);
	copy_well(fixture);
	assert_true(is_equal(fixture));
	fixture_expect_bytes(fixture, "older/" JOURNAL_NAME, before, len);
	free(before);
}

/* --- Destinations that are refused ------------------------------------------
 */

/* A store of three plants and an earlier copy of it, which then change. */

static void
link_to_another_file(const struct fixture *fixture)
{
	fixture_remove(fixture, COPY);
	fixture_write(fixture, "victim", 0, "mine", 4);
	assert_int_equal(symlinkat("../victim", fixture->dir, COPY), 0);
}

static void
link_to_nowhere(const struct fixture *fixture)
{
	fixture_remove(fixture, COPY);
	assert_int_equal(symlinkat("../victim", fixture->dir, COPY), 0);
}

static void
link_to_the_journal(const struct fixture *fixture)
{
	fixture_remove(fixture, COPY);
	assert_int_equal(
	    linkat(fixture->dir, JOURNAL_NAME, fixture->dir, COPY, 0), 0);
}

static void
pipe_in_its_place(const struct fixture *fixture)
{
	fixture_remove(fixture, COPY);
	assert_int_equal(mkfifoat(fixture->dir, COPY, 0600), 0);
}

static void
serve_it(const struct fixture *fixture)
{
	assert_int_equal(mkdirat(fixture->dir, DEST "/index", 0700), 0);
}

static void
change_the_store(const struct fixture *fixture)
{
	renew_store(fixture);
	fixture_make_store(fixture, false, 1, 4);
}

static void
set_the_store_back(const struct fixture *fixture)
{
	fixture_truncate(
	    fixture, JOURNAL_NAME, fixture_size(fixture, COPY) - 100);
	fixture_remove_index(fixture);
}

static void
let_the_store_go_another_way(const struct fixture *fixture)
{
	set_the_store_back(fixture);
	fixture_make_store(fixture, false, 7, 9);
}

static void
have_only_room_for_it(const struct fixture *fixture)
{
	char room[1000];

	memset(room, '\n', sizeof(room));
	set_the_store_back(fixture);
	fixture_make_store(fixture, false, 3, 3);
	fixture_truncate(
	    fixture, JOURNAL_NAME, fixture_size(fixture, COPY) - 300);
	fixture_append(fixture, JOURNAL_NAME, room, sizeof(room));
	fixture_remove_index(fixture);
}

static void
damage_its_end(const struct fixture *fixture)
{
	fixture_write(fixture, COPY, fixture_size(fixture, COPY) - 20, "X", 1);
}

static void
let_another_own_the_file(const struct fixture *fixture)
{
	assert_int_equal(fchownat(fixture->dir, COPY, NOBODY, NOBODY, 0), 0);
}

static void
let_another_own_the_directory(const struct fixture *fixture)
{
	assert_int_equal(fchownat(fixture->dir, DEST, NOBODY, NOBODY, 0), 0);
}

static void
refuse(const struct fixture *fixture, void (*arrange)(const struct fixture *),
    enum fault fault)
{
	struct stat before, after;
	char *bytes = NULL;
	size_t len = 0;

	fixture_make_store(fixture, false, 1, 3);
	copy_well(fixture);
	arrange(fixture);
	assert_int_equal(
	    fstatat(fixture->dir, COPY, &before, AT_SYMLINK_NOFOLLOW), 0);
	if (S_ISREG(before.st_mode))
		bytes = fixture_read(fixture, COPY, &len);
	assert_int_equal(copy(fixture, NULL, NULL), fault);
	assert_int_equal(
	    fstatat(fixture->dir, COPY, &after, AT_SYMLINK_NOFOLLOW), 0);
	assert_int_equal(after.st_ino, before.st_ino);
	assert_int_equal(after.st_mode, before.st_mode);
	if (bytes != NULL)
		fixture_expect_bytes(fixture, COPY, bytes, len);
	free(bytes);
	assert_false(fixture_exists(fixture, COPY ".new"));
	if (arrange == link_to_another_file)
		assert_int_equal(fixture_size(fixture, "victim"), 4);
	else
		assert_false(fixture_exists(fixture, "victim"));
	parts_empty(fixture->dir, DEST);
	renew_store(fixture);
}

static void
destination_that_is_no_earlier_copy_of_ours_is_refused(void **state)
{
	static const struct {
		void (*arrange)(const struct fixture *);
		enum fault fault;
	} cases[] = {
		{ link_to_another_file, FAULT_SETUP },
		{ link_to_nowhere, FAULT_SETUP },
		{ link_to_the_journal, FAULT_SETUP },
		{ pipe_in_its_place, FAULT_SETUP },
		{ serve_it, FAULT_OUTPUT },
		{ change_the_store, FAULT_OUTPUT },
		{ set_the_store_back, FAULT_OUTPUT },
		{ let_the_store_go_another_way, FAULT_OUTPUT },
		{ have_only_room_for_it, FAULT_OUTPUT },
		{ damage_its_end, FAULT_OUTPUT },
	};
	const struct fixture *fixture = *state;

	for (size_t i = 0; i < COUNT(cases); i++) {
		refuse(fixture, cases[i].arrange, cases[i].fault);
		unlinkat(fixture->dir, "victim", 0);
	}
}

static void
destination_of_another_user_is_refused(void **state)
{
	/* No one else may give a file away. */
	if (geteuid() != 0)
		skip();
	refuse(*state, let_another_own_the_file, FAULT_SETUP);
	refuse(*state, let_another_own_the_directory, FAULT_SETUP);
}

static void
destination_that_a_service_uses_is_refused(void **state)
{
	const struct fixture *fixture = *state;
	struct fixture there = *fixture;
	struct journal used;

	fixture_make_store(fixture, false, 1, 1);
	copy_well(fixture);
	snprintf(there.path, sizeof(there.path), "%.50s/" DEST, fixture->path);
	used = fixture_journal(&there, true);
	assert_int_equal(journal_lock(&used, true, 0), 0);
	assert_int_equal(copy(fixture, NULL, NULL), FAULT_BUSY);
	journal_close(&used);
	copy_well(fixture);
}

static void
destination_that_cannot_be_made_is_refused(void **state)
{
	static const char *const names[] = { "none/copy", JOURNAL_NAME };
	const struct fixture *fixture = *state;
	struct copy_report report;
	char dest[96];

	fixture_make_store(fixture, false, 1, 1);
	for (size_t i = 0; i < COUNT(names); i++) {
		snprintf(dest, sizeof(dest), "%s/%s", fixture->path, names[i]);
		assert_int_equal(
		    copy_backup(fixture->path, dest, NULL, &report),
		    FAULT_OUTPUT);
	}
	/* The store itself. */
	assert_int_equal(
	    copy_backup(fixture->path, fixture->path, NULL, &report),
	    FAULT_OUTPUT);
	fixture_reopen_and_expect(fixture, (const int64_t[]){ 1 }, 1);
}

static void
damaged_store_is_not_copied(void **state)
{
	const struct fixture *fixture = *state;

	fixture_make_store(fixture, false, 1, 3);
	fixture_write(fixture, JOURNAL_NAME, 90, "X", 1);
	assert_int_equal(copy(fixture, NULL, NULL), FAULT_DAMAGED);
	assert_false(fixture_exists(fixture, COPY));
	assert_false(fixture_exists(fixture, COPY ".new"));
}

/* --- What happens meanwhile -------------------------------------------------
 */

/* At its nth step the copy is put into service, or copied to by another. */
struct meddler {
	const struct fixture *fixture;
	unsigned n, nth;
	bool serve;
	bool created;      /* its plant was acknowledged */
	enum fault copied; /* of the other copying */
};

static void
serve_copy(struct meddler *meddler)
{
	struct fixture there = *meddler->fixture;
	struct journal journal;
	struct store *store;

	snprintf(there.path, sizeof(there.path), "%.50s/" DEST,
	    meddler->fixture->path);
	/* It would wait for the lock. */
	journal = fixture_journal(&there, true);
	bool locked = journal_lock(&journal, true, 0) == 0;
	journal_close(&journal);
	if (!locked)
		return;
	store = fixture_open(&there, false);
	meddler->created =
	    fixture_put(store, 4242, NULL).result == STORE_CREATED;
	store_close(store);
}

static bool
meddle(void *context, uint64_t done, uint64_t total)
{
	struct meddler *meddler = context;

	assert_true(done <= total);
	if (++meddler->n != meddler->nth)
		return true;
	if (meddler->serve)
		serve_copy(meddler);
	else
		meddler->copied = copy(meddler->fixture, NULL, NULL);
	return true;
}

static void
copy_put_into_service_meanwhile_keeps_its_new_plants(void **state)
{
	const struct fixture *fixture = *state;
	unsigned created = 0, kept_out = 0;
	size_t len;

	fixture_make_store(fixture, false, 1, 3);
	for (unsigned nth = 1;; nth++) {
		struct meddler meddler = {
			.fixture = fixture, .nth = nth, .serve = true
		};
		struct watch watch = { meddle, &meddler };

		copy_well(fixture);
		fixture_make_store(fixture, false, 3 + nth, 3 + nth);
		enum fault fault = copy(fixture, &watch, NULL);
		if (meddler.n < nth)
			break;
		assert_int_equal(
		    fault, meddler.created ? FAULT_OUTPUT : FAULT_NONE);
		char *bytes = fixture_read(fixture, COPY, &len);
		assert_true(
		    meddler.created == (strstr(bytes, "\"id\":4242") != NULL));
		free(bytes);
		created += meddler.created;
		kept_out += !meddler.created;
		parts_empty(fixture->dir, DEST);
	}
	assert_true(created > 0 && kept_out > 0);
}

static void
copy_to_where_another_is_being_made_is_refused(void **state)
{
	const struct fixture *fixture = *state;

	/* The first, and one over an earlier one. */
	for (int64_t id = 1; id <= 2; id++) {
		struct meddler meddler = { .fixture = fixture, .nth = 2 };
		struct watch watch = { meddle, &meddler };

		fixture_make_store(fixture, false, id, id);
		assert_int_equal(copy(fixture, &watch, NULL), FAULT_NONE);
		assert_int_equal(meddler.copied, FAULT_BUSY);
		assert_true(is_equal(fixture));
	}
}

/* The bytes of the earlier copy, "" if there is none; from malloc. */
static char *
read_earlier(const struct fixture *fixture, size_t *len)
{
	*len = 0;
	return fixture_exists(fixture, COPY) ? fixture_read(fixture, COPY, len)
					     : strdup("");
}

static void
expect_as_before(const struct fixture *fixture, const char *before, size_t len)
{
	size_t len_after;
	char *after = read_earlier(fixture, &len_after);

	assert_int_equal(len_after, len);
	assert_memory_equal(after, before, len);
	assert_false(fixture_exists(fixture, COPY ".new"));
	free(after);
}

static void
copy_that_is_stopped_leaves_what_was_there(void **state)
{
	const struct fixture *fixture = *state;

	for (int64_t id = 1; id <= 2; id++) {
		enum fault fault = FAULT_STOPPED;
		unsigned stops = 0;
		size_t len;

		fixture_make_store(fixture, false, id, id);
		char *before = read_earlier(fixture, &len);
		for (unsigned nth = 1; fault != FAULT_NONE; nth++) {
			struct fixture_steps steps = { .last = nth };
			struct watch watch = { fixture_step, &steps };

			fault = copy(fixture, &watch, NULL);
			if (fault == FAULT_NONE)
				break;
			assert_int_equal(fault, FAULT_STOPPED);
			expect_as_before(fixture, before, len);
			stops++;
		}
		/* While it reads, and while it copies. */
		assert_in_range(stops, 2, 10);
		assert_true(is_equal(fixture));
		free(before);
	}
}

static void
copy_that_fails_leaves_what_was_there_or_is_whole(void **state)
{
	static const enum shim_call calls[] = { SHIM_PWRITE, SHIM_PREAD,
		SHIM_FSYNC, SHIM_FSTAT };
	const struct fixture *fixture = *state;
	size_t len;

	for (size_t i = 0; i < 2 * COUNT(calls); i++) {
		enum shim_call call = calls[i / 2];
		unsigned failures = 0;

		bool untouched = false;
		uint64_t new_id = 100 * (i + 1);

		for (unsigned nth = 1; !untouched; nth++) {
			if (i % 2 == 0)
				parts_empty(fixture->dir, DEST);
			char *before = read_earlier(fixture, &len);
			fixture_make_store(
			    fixture, false, (int64_t)new_id, (int64_t)new_id);
			new_id++;
			shim_fail(call, NULL, nth, 1, EIO);
			enum fault fault = copy(fixture, NULL, NULL);
			untouched = shim_count(call) < nth;
			shim_reset();
			/* The sync of its name alone comes behind that. */
			if (fault == FAULT_NONE ||
			    (call == SHIM_FSYNC &&
				fixture_exists(fixture, COPY) &&
				fixture_size(fixture, COPY) != len))
				assert_true(is_equal(fixture));
			else
				expect_as_before(fixture, before, len);
			assert_false(fixture_exists(fixture, COPY ".new"));
			assert_true(fault == FAULT_NONE || !untouched);
			failures += fault != FAULT_NONE;
			free(before);
		}
		assert_true(failures > 0);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(copy_of_a_store_in_use_equals_it),
		TEST(second_copy_reports_what_is_new),
		TEST(copy_can_be_made_of_a_file),
		TEST(copy_served_as_a_store_knows_its_plants),
		TEST(hard_link_to_an_earlier_copy_keeps_its_bytes),
		TEST(destination_that_is_no_earlier_copy_of_ours_is_refused),
		TEST(destination_of_another_user_is_refused),
		TEST(destination_that_a_service_uses_is_refused),
		TEST(destination_that_cannot_be_made_is_refused),
		TEST(damaged_store_is_not_copied),
		TEST(copy_put_into_service_meanwhile_keeps_its_new_plants),
		TEST(copy_to_where_another_is_being_made_is_refused),
		TEST(copy_that_is_stopped_leaves_what_was_there),
		TEST(copy_that_fails_leaves_what_was_there_or_is_whole),
	};

	return cmocka_run_group_tests_name("copy", tests, NULL, NULL);
}
