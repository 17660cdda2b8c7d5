/* test_copy: a journal checked, and copied while it is in use. */
#include "store_fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fault_shim.h"
#include "reader/reader.h"
#include "store_parts.h"

/* The directory of the copy, within that of the store. */
#define DEST "copy"
#define COPY DEST "/" JOURNAL_NAME

#define NOBODY 65534

static enum fault
copy(const struct fixture *fixture, const struct watch *watch,
    struct reader_report *report)
{
	struct reader_report unused;
	char dest[80];

	snprintf(dest, sizeof(dest), "%s/" DEST, fixture->path);
	return copy_backup(fixture->path, dest, false, watch,
	    report == NULL ? &unused : report);
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
	struct contents journal = fixture_read(fixture, JOURNAL_NAME);
	struct contents copy = fixture_read(fixture, COPY);

	/* The room ahead is no part of a copy. */
	return copy.len <= journal.len &&
	       memcmp(journal.at, copy.at, copy.len) == 0 &&
	       strspn(journal.at + copy.len, "\n") == journal.len - copy.len;
}

STORE_TEST(copy_of_a_store_in_use_equals_it)
{
	struct store *store = fixture_open(fixture, true);
	struct reader_report report;

	fixture_create(store, 1);
	fixture_create(store, 2);
	assert_int_equal(copy(fixture, NULL, &report), FAULT_NONE);
	assert_int_equal(report.plants, 2);
	assert_int_equal(report.added, report.bytes);
	assert_true(is_equal(fixture));
	fixture_create(store, 3);
	store_close(store);
}

STORE_TEST(second_copy_reports_what_is_new)
{
	struct reader_report first, second, verified;
	char dest[80];

	fixture_make_store(fixture, false, 1, 2);
	assert_int_equal(copy(fixture, NULL, &first), FAULT_NONE);
	fixture_make_store(fixture, false, 3, 4);
	assert_int_equal(copy(fixture, NULL, &second), FAULT_NONE);
	assert_int_equal(second.plants, 2);
	assert_int_equal(second.added, second.bytes - first.bytes);
	assert_string_equal(second.store, first.store);
	assert_true(is_equal(fixture));
	snprintf(dest, sizeof(dest), "%s/" DEST, fixture->path);
	assert_int_equal(verify_store(dest, NULL, &verified), FAULT_NONE);
	assert_int_equal(verified.plants, 4);
}

static ino_t
inode_of_copy(const struct fixture *fixture)
{
	struct stat st;

	assert_int_equal(fstatat(fixture->dir, COPY, &st, 0), 0);
	return st.st_ino;
}

STORE_TEST(earlier_copy_is_extended_unless_it_was_left_unfinished)
{
	fixture_make_store(fixture, false, 1, 1);
	copy_well(fixture);
	for (int64_t id = 2; id <= 6; id++) {
		ino_t before = inode_of_copy(fixture);
		bool unfinished = id % 2 == 0;

		/* As by a kill or a failed sync, from here to the end mark. */
		fixture_make_store(fixture, false, id, id);
		if (unfinished) {
			shim_fail(SHIM_FSYNC, COPY, 1, 1, EIO);
			assert_int_equal(
			    copy(fixture, NULL, NULL), FAULT_FAILED);
			assert_true(shim_reset());
			fixture_write(fixture, COPY,
			    fixture_size(fixture, COPY) - 60, "?", 1);
			/* And what a killed copy of all leaves. */
			fixture_write(fixture, COPY ".new", 0, "half", 4);
		}
		copy_well(fixture);
		assert_true(is_equal(fixture));
		assert_int_equal(inode_of_copy(fixture) == before, !unfinished);
		assert_false(fixture_exists(fixture, COPY ".new"));
	}
}

STORE_TEST(copy_can_be_made_of_a_file)
{
	struct reader_report report;
	char dest[80], from[96];

	snprintf(dest, sizeof(dest), "%s/" DEST, fixture->path);
	snprintf(from, sizeof(from), "%s/" JOURNAL_NAME, fixture->path);
	fixture_make_store(fixture, false, 1, 2);
	assert_int_equal(
	    copy_backup(from, dest, false, NULL, &report), FAULT_NONE);
	assert_int_equal(report.plants, 2);
	assert_true(is_equal(fixture));
}

STORE_TEST(copy_served_as_a_store_knows_its_plants)
{
	fixture_make_store(fixture, false, 1, 3);
	copy_well(fixture);
	renew_store(fixture);
	assert_int_equal(
	    renameat(fixture->dir, COPY, fixture->dir, JOURNAL_NAME), 0);
	expect_plants(fixture, 3);
}

/* `cp -al copy older`: generations that share a file. */
STORE_TEST(hard_link_to_an_earlier_copy_keeps_its_bytes)
{
	fixture_make_store(fixture, false, 1, 2);
	copy_well(fixture);
	assert_int_equal(mkdirat(fixture->dir, "older", 0700), 0);
	assert_int_equal(
	    linkat(fixture->dir, COPY, fixture->dir, "older/" JOURNAL_NAME, 0),
	    0);
	struct contents before = fixture_read(fixture, "older/" JOURNAL_NAME);
	fixture_make_store(fixture, false, 3, 4);
	copy_well(fixture);
	assert_true(is_equal(fixture));
	expect_contents(fixture, "older/" JOURNAL_NAME, &before);
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
	struct contents bytes = { 0 };
	struct stat before, after;

	fixture_make_store(fixture, false, 1, 3);
	copy_well(fixture);
	arrange(fixture);
	assert_int_equal(
	    fstatat(fixture->dir, COPY, &before, AT_SYMLINK_NOFOLLOW), 0);
	if (S_ISREG(before.st_mode))
		bytes = fixture_read(fixture, COPY);
	assert_int_equal(copy(fixture, NULL, NULL), fault);
	assert_int_equal(
	    fstatat(fixture->dir, COPY, &after, AT_SYMLINK_NOFOLLOW), 0);
	assert_int_equal(after.st_ino, before.st_ino);
	assert_int_equal(after.st_mode, before.st_mode);
	if (S_ISREG(after.st_mode))
		expect_contents(fixture, COPY, &bytes);
	assert_false(fixture_exists(fixture, COPY ".new"));
	if (arrange == link_to_another_file)
		assert_int_equal(fixture_size(fixture, "victim"), 4);
	else
		assert_false(fixture_exists(fixture, "victim"));
	parts_empty(fixture->dir, DEST);
	renew_store(fixture);
}

STORE_TEST(destination_that_is_no_earlier_copy_of_ours_is_refused)
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

	for (size_t i = 0; i < COUNT(cases); i++) {
		refuse(fixture, cases[i].arrange, cases[i].fault);
		unlinkat(fixture->dir, "victim", 0);
	}
}

STORE_TEST(destination_of_another_user_is_refused)
{
	/* No one else may give a file away. */
	if (geteuid() != 0)
		skip();
	refuse(fixture, let_another_own_the_file, FAULT_SETUP);
	refuse(fixture, let_another_own_the_directory, FAULT_SETUP);
}

STORE_TEST(destination_that_a_service_uses_is_refused)
{
	struct fixture there = *fixture;
	struct journal used;

	fixture_make_store(fixture, false, 1, 1);
	copy_well(fixture);
	snprintf(there.path, sizeof(there.path), "%.50s/" DEST, fixture->path);
	used = fixture_journal(&there, true);
	assert_int_equal(journal_lock(&used, JOURNAL_EXCLUSIVE, 0), FAULT_NONE);
	assert_int_equal(copy(fixture, NULL, NULL), FAULT_BUSY);
	journal_close(&used);
	copy_well(fixture);
}

STORE_TEST(destination_that_cannot_be_made_is_refused)
{
	static const char *const names[] = { "none/copy", JOURNAL_NAME };
	struct reader_report report;
	char dest[96];

	fixture_make_store(fixture, false, 1, 1);
	for (size_t i = 0; i < COUNT(names); i++) {
		snprintf(dest, sizeof(dest), "%s/%s", fixture->path, names[i]);
		assert_int_equal(
		    copy_backup(fixture->path, dest, false, NULL, &report),
		    FAULT_OUTPUT);
	}
	/* The store itself. */
	assert_int_equal(
	    copy_backup(fixture->path, fixture->path, true, NULL, &report),
	    FAULT_OUTPUT);
	expect_plants(fixture, 1);
}

STORE_TEST(damaged_store_is_not_copied)
{
	fixture_make_store(fixture, false, 1, 3);
	fixture_write(fixture, JOURNAL_NAME, 90, "X", 1);
	assert_int_equal(copy(fixture, NULL, NULL), FAULT_DAMAGED);
	assert_false(fixture_exists(fixture, COPY));
	assert_false(fixture_exists(fixture, COPY ".new"));
}

/* --- What happens meanwhile -------------------------------------------------
 */

/* The copy is put into service, or copied to by another. */
struct meddler {
	const struct fixture *fixture;
	bool created;      /* its plant was acknowledged */
	enum fault copied; /* of the other copying */
};

static void
serve_copy(void *argument)
{
	struct meddler *meddler = argument;
	struct fixture there = *meddler->fixture;
	struct journal journal;
	struct store *store;

	snprintf(there.path, sizeof(there.path), "%.50s/" DEST,
	    meddler->fixture->path);
	/* It would wait for the lock. */
	journal = fixture_journal(&there, true);
	bool locked =
	    journal_lock(&journal, JOURNAL_EXCLUSIVE, 0) == FAULT_NONE;
	journal_close(&journal);
	if (!locked)
		return;
	store = fixture_open(&there, false);
	meddler->created = fixture_put(store, 4242, NULL) == STORE_CREATED;
	store_close(store);
}

static void
copy_too(void *argument)
{
	struct meddler *meddler = argument;

	meddler->copied = copy(meddler->fixture, NULL, NULL);
}

STORE_TEST(copy_put_into_service_meanwhile_keeps_its_new_plants)
{
	unsigned kept_out = 0;

	fixture_make_store(fixture, false, 1, 3);
	copy_well(fixture);
	struct contents earlier = fixture_read(fixture, COPY);
	fixture_make_store(fixture, false, 4, 4);
	for (unsigned nth = 1;; nth++) {
		struct meddler meddler = { .fixture = fixture };
		struct fixture_steps steps = {
			.last = nth, .happens = serve_copy, .argument = &meddler
		};
		struct watch watch = { fixture_step, &steps };

		parts_empty(fixture->dir, DEST);
		fixture_restore(fixture, COPY, &earlier);
		enum fault fault = copy(fixture, &watch, NULL);
		if (steps.n < nth)
			break;
		assert_int_equal(
		    fault, meddler.created ? FAULT_OUTPUT : FAULT_NONE);
		const char *copied = fixture_read(fixture, COPY).at;
		assert_int_equal(
		    strstr(copied, "\"id\":4242") != NULL, meddler.created);
		kept_out += !meddler.created;
	}
	assert_true(kept_out > 0);
}

STORE_TEST(copy_to_where_another_is_being_made_is_refused)
{
	/* The first, and one over an earlier one. */
	for (int64_t id = 1; id <= 2; id++) {
		struct meddler meddler = { .fixture = fixture };
		struct fixture_steps steps = {
			.last = 2, .happens = copy_too, .argument = &meddler
		};
		struct watch watch = { fixture_step, &steps };

		fixture_make_store(fixture, true, id, id);
		assert_int_equal(copy(fixture, &watch, NULL), FAULT_NONE);
		assert_int_equal(meddler.copied, FAULT_BUSY);
		assert_true(is_equal(fixture));
	}
}

static void
expect_as_before(const struct fixture *fixture, const struct contents *before)
{
	expect_contents(fixture, COPY, before);
	assert_false(fixture_exists(fixture, COPY ".new"));
}

STORE_TEST(copy_that_is_stopped_leaves_what_was_there)
{
	for (int64_t id = 1; id <= 2; id++) {
		enum fault fault = FAULT_STOPPED;
		unsigned stops = 0;

		fixture_make_store(fixture, false, id, id);
		struct contents before = fixture_read(fixture, COPY);
		for (unsigned nth = 1; fault != FAULT_NONE; nth++) {
			struct fixture_steps steps = { .last = nth };
			struct watch watch = { fixture_step, &steps };

			fault = copy(fixture, &watch, NULL);
			if (fault == FAULT_NONE)
				break;
			assert_int_equal(fault, FAULT_STOPPED);
			expect_as_before(fixture, &before);
			stops++;
		}
		/* While it reads, and while it copies. */
		assert_in_range(stops, 2, 10);
		assert_true(is_equal(fixture));
	}
}

STORE_TEST(copy_that_fails_leaves_what_was_there_or_is_whole)
{
	static const enum shim_call calls[] = { SHIM_PWRITE, SHIM_PREAD,
		SHIM_FSYNC, SHIM_FSTAT };

	for (size_t i = 0; i < 2 * COUNT(calls); i++) {
		enum shim_call call = calls[i / 2];
		unsigned failures = 0;
		bool failed = true;
		int64_t id = 100 * ((int64_t)i + 1);

		for (unsigned nth = 1; failed; nth++) {
			if (i % 2 == 0)
				parts_empty(fixture->dir, DEST);
			struct contents before = fixture_read(fixture, COPY);
			fixture_make_store(fixture, false, id, id);
			id++;
			shim_fail(call, NULL, nth, 1, EIO);
			enum fault fault = copy(fixture, NULL, NULL);
			failed = shim_reset();
			/* The sync of its name, or its end mark, comes last. */
			if (fault == FAULT_NONE ||
			    (fixture_exists(fixture, COPY) &&
				fixture_size(fixture, COPY) != before.len))
				assert_true(is_equal(fixture));
			else
				expect_as_before(fixture, &before);
			assert_false(fixture_exists(fixture, COPY ".new"));
			assert_true(fault == FAULT_NONE || failed);
			failures += fault != FAULT_NONE;
		}
		assert_true(failures > 0);
	}
}
