# Plant Store.  `make help` lists the targets and variables.

VERSION := 1.1.0
VERSION := $(shell scripts/version '$(VERSION)')

BUILD  ?= build
PREFIX ?= /usr/local
SAN    ?=
# Warnings are errors in scripts/test: a newer compiler may have new ones.
WERROR ?=
# A line for each file; with V=1 the commands, with make -s nothing.
V      ?=
Q      := $(if $(V),,@)
quiet   = $(V)$(findstring s,$(firstword -$(MAKEFLAGS)))
print   = $(if $(quiet),,@echo '$(1) $(2)')

# A journal's offsets, and the sizes in memory, are of 64 bits.
ifeq (__LP64__,$(shell echo __LP64__ | $(CC) $(CFLAGS) -E -P -x c - 2>&1))
$(error Plant Store needs a 64-bit system: $(CC) compiles for 32 bits)
endif

PKG_CONFIG ?= pkg-config
PACKAGES   := fcgi json-c libcrypto libseccomp

WARNINGS := -Wall -Wextra -Wpedantic -Wshadow -Wconversion \
	-Wstrict-prototypes -Wmissing-prototypes -Wvla -Wformat=2 -Wundef \
	-Wcast-qual -Wwrite-strings -Wpointer-arith $(if $(WERROR),-Werror)

# Whether the compiler takes an option, and runs into no warning with it.
has = $(shell $(CC) -Werror $(1) -x c -c /dev/null -o /dev/null 2>/dev/null \
	&& echo '$(1)')

HARDENING := -fstack-protector-strong -fPIE \
	$(call has,-fstack-clash-protection) $(call has,-fcf-protection)
ifeq ($(SAN),)
# The sanitizers watch the functions that fortification replaces.
HARDENING += -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2
else
# A variable without a value gets one that a test notices.
SANITIZE := -fsanitize=$(SAN) -fno-sanitize-recover=all \
	-fno-omit-frame-pointer $(call has,-ftrivial-auto-var-init=pattern)
# They open files and make calls that the sandbox closes.
HARDENING += -DNO_SANDBOX
endif

# What the module for PostgreSQL calls of the program that loads it.
EXPORTS := fault_report log_at metrics record_is_canonical timestamp_print \
	timestamp_read

# The user's CPPFLAGS, CFLAGS and LDFLAGS come last and so win.  The same sources
# give the same bytes in whichever folder they are; gcc notes the folder by PWD.
export PWD := $(CURDIR)
ALL_CFLAGS := '-fdebug-prefix-map=$(subst ','\'',$(CURDIR))=.' -std=c17 -D_GNU_SOURCE -g \
	$(if $(SAN),-O1,-O2) $(WARNINGS) $(HARDENING) $(SANITIZE) -pthread -Iinclude -I$(BUILD) \
	$(shell $(PKG_CONFIG) --cflags $(PACKAGES)) $(CPPFLAGS) $(CFLAGS)
LINK := -pthread -Wl,-z,relro,-z,now $(SANITIZE)
ALL_LDFLAGS := -pie $(LINK) $(EXPORTS:%=-Wl,--export-dynamic-symbol=%) \
	$(CFLAGS) $(LDFLAGS)
LIBS := $(shell $(PKG_CONFIG) --libs $(PACKAGES)) $(LDLIBS)
# The operator's command answers nobody, and what answers asks nobody.
CLI_LIBS := $(shell $(PKG_CONFIG) --libs json-c libcrypto) $(LDLIBS)
TEST_LIBS := $(shell $(PKG_CONFIG) --libs cmocka 2>/dev/null)

LAYERS  := ground pure plant http store api gateway reader
LIB     := $(BUILD)/libplant-store.a
LIB_O   := $(patsubst %.c,$(BUILD)/%.o,$(sort \
	$(filter-out %/responder.c,$(wildcard $(LAYERS:%=src/%/*.c)))))
FCGI_O  := $(BUILD)/src/gateway/responder.o
PG_O    := $(patsubst %.c,$(BUILD)/%.o,$(sort $(wildcard src/postgresql/*.c)))
CLI_O   := $(patsubst %.c,$(BUILD)/%.o,$(sort $(wildcard src/commands/*.c)))
TESTS   := $(patsubst %.c,$(BUILD)/%,$(sort $(wildcard tests/unit/test_*.c)))
# What several tests share; a test gets the objects that it calls.
HELPERS := $(BUILD)/tests/unit/helpers.a
HELP_O  := $(patsubst %.c,$(BUILD)/%.o,$(sort \
	$(filter-out tests/unit/test_%,$(wildcard tests/unit/*.c))))
# Fuzz targets: with FUZZ=-fsanitize=fuzzer those of libFuzzer, else programs
# that run the inputs they are given.
FUZZ    ?=
FUZZERS := $(patsubst %.c,$(BUILD)/%,$(sort $(wildcard tests/fuzz/fuzz_*.c)))
FUZZ_O  := $(BUILD)/tests/fuzz/model.o $(BUILD)/tests/unit/store_parts.o \
	$(if $(FUZZ),,$(BUILD)/tests/fuzz/driver.o)
OBJECTS := $(LIB_O) $(FCGI_O) $(CLI_O) $(PG_O) $(TESTS:%=%.o) $(HELP_O) \
	$(FUZZERS:%=%.o) $(FUZZ_O)

.PHONY: all postgresql tests check docs fuzzers fuzz fuzz-afl coverage install \
	uninstall deb dist clean format tags help FORCE
.DELETE_ON_ERROR:
# Objects of tests are kept, so that nothing is compiled twice.
.SECONDARY:

all: $(BUILD)/plant-store.fcgi $(BUILD)/plant-store \
	$(BUILD)/plant-store-check-url

# plant-store runs it from beside itself, or as installed.
$(BUILD)/plant-store-check-url: deploy/plant-store-check-url
	@cp $< $@

$(BUILD)/plant-store.fcgi: $(FCGI_O) $(LIB)
	$(call print,LD,$@)
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $(FCGI_O) $(LIB) $(LIBS)

$(BUILD)/plant-store: $(CLI_O) $(LIB)
	$(call print,LD,$@)
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $(CLI_O) $(LIB) $(CLI_LIBS)

# A module, since libpq would cost each start of a program several ms.
postgresql: $(BUILD)/postgresql.so

$(BUILD)/postgresql.so: $(PG_O) $(BUILD)/sources
	$(call print,LD,$@)
	$(Q)$(CC) -shared $(LINK) $(CFLAGS) $(LDFLAGS) -o $@ $(PG_O) \
		$(shell $(PKG_CONFIG) --libs libpq)

COMMA := ,
# plant-store prints SQL, a string of C for each file, and its help, one for each line.
TEXTS := $(patsubst deploy/%,$(BUILD)/%.h,$(wildcard deploy/postgresql/*.sql)) \
	$(BUILD)/help.txt.h
$(TEXTS): $(BUILD)/%.h: deploy/%
	@mkdir -p $(@D)
	@sed 's/["\\]/\\&/g; s/.*/"&\\n"$(if $(filter %.txt,$<),$(COMMA))/' $< >$@
$(BUILD)/src/commands/store_command.o $(BUILD)/src/commands/command.o: $(TEXTS)

# The rows of the table of errors, as macros.
$(BUILD)/errors.txt.h: deploy/errors.txt
	@mkdir -p $(@D)
	@sed -E 's/["\\]/\\&/g; s/([^ ]*) ([0-9]*) ([0-9]*) (.*)/X(\1, \2, \3, "\4")/' \
		$< >$@

# The settings, likewise; their columns are between tabs.
$(BUILD)/settings.txt.h: deploy/settings.txt
	@mkdir -p $(@D)
	@sed -E 's/["\\]/\\&/g; s/\t/", "/g; s/([^"]*)", (.*)/X(\1, \2")/' $< >$@
$(OBJECTS): | $(BUILD)/errors.txt.h $(BUILD)/settings.txt.h

# A commit makes only these anew.
VERSIONED := $(patsubst %,$(BUILD)/src/%.o,ground/metrics api/metrics \
	gateway/responder gateway/service commands/command)
$(VERSIONED): PRIVATE += -DPLANT_STORE_VERSION='"$(VERSION)"'
$(VERSIONED): $(BUILD)/version

$(PG_O): PRIVATE = -fPIC -fvisibility=hidden \
	$(shell $(PKG_CONFIG) --cflags libpq)

# Made anew each time: `ar` would keep the object of a source that is gone.
$(LIB): $(LIB_O) $(BUILD)/sources
	$(call print,AR,$@)
	@rm -f $@
	$(Q)$(AR) rcsD $@ $(LIB_O)

$(HELPERS): $(HELP_O) $(BUILD)/sources
	$(call print,AR,$@)
	@rm -f $@
	$(Q)$(AR) rcsD $@ $(HELP_O)

$(TESTS): $(BUILD)/%: $(BUILD)/%.o $(HELPERS) $(LIB)
	$(call print,LD,$@)
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $< $(HELPERS) $(LIB) $(LIBS) $(TEST_LIBS)

$(FUZZERS): $(BUILD)/%: $(BUILD)/%.o $(FUZZ_O) $(LIB)
	$(call print,LD,$@)
	$(Q)$(CC) $(ALL_LDFLAGS) $(FUZZ) -o $@ $< $(FUZZ_O) $(LIB) $(LIBS)

# Tests may look at what a layer keeps to itself.
$(TESTS:%=%.o) $(HELP_O) $(FUZZERS:%=%.o): PRIVATE := -Isrc/store -Isrc/gateway \
	-Isrc/reader -Itests/unit

$(BUILD)/%.o: %.c $(BUILD)/command
	@mkdir -p $(@D)
	$(call print,CC,$<)
	$(Q)$(CC) $(ALL_CFLAGS) $(PRIVATE) -MMD -MP -c -o $@ $<

# How this folder was built, written only when it changes: another compiler or
# flag makes everything anew, a source that comes or goes the library and the
# programs.
define COMMAND
$(CC) $(ALL_CFLAGS)
$(CC) $(ALL_LDFLAGS) $(LIBS)
endef
define SOURCES
$(LIB_O) $(CLI_O) $(HELP_O) $(PG_O)
endef
export COMMAND SOURCES
$(BUILD)/command: CONTENT = $$COMMAND
$(BUILD)/sources: CONTENT = $$SOURCES
$(BUILD)/version: CONTENT = $(VERSION)
$(BUILD)/command $(BUILD)/sources $(BUILD)/version: FORCE
	@mkdir -p $(@D)
	@printf '%s\n' "$(CONTENT)" | cmp -s - $@ || \
		printf '%s\n' "$(CONTENT)" >$@

tests: $(TESTS)

# Runs all of them, also after one that fails.
check: tests
	@failed=0; for test in $(TESTS); do $$test || failed=1; done; \
	exit $$failed

fuzzers: $(FUZZERS)

# Each makes builds of its own below build/.
fuzz fuzz-afl coverage:
	scripts/$@

# The API page.  Needs npm.
docs:
	BUILD='$(BUILD)' scripts/docs

install: all
install uninstall:
	BUILD='$(BUILD)' PREFIX='$(PREFIX)' DESTDIR='$(DESTDIR)' scripts/install $@

# Reads MAINTAINER from the environment, where make has put it.
deb:
	BUILD='$(BUILD)' scripts/deb '$(VERSION)'

# What the last commit has: the same bytes for everyone.
DIST = $(BUILD)/plant-store-$(VERSION)
dist:
	@mkdir -p $(BUILD)
	git -c tar.umask=022 archive --prefix=$(notdir $(DIST))/ \
		--add-virtual-file='$(notdir $(DIST))/version:$(VERSION)' \
		-o $(DIST).tar HEAD
	gzip -9nf $(DIST).tar
	cd $(BUILD) && sha256sum $(notdir $(DIST)).tar.gz >$(notdir $(DIST)).tar.gz.sha256

clean:
	rm -rf $(BUILD)

format:
	scripts/format

# For an editor: where each function is.
tags:
	ctags $$(find src include tests -name '*.[ch]')

help:
	@echo 'Targets:   all tests check install uninstall clean format tags help'
	@echo '           fuzz fuzz-afl coverage'
	@echo '           docs: the API page, in BUILD/docs; needs npm'
	@echo '           postgresql: the module for PLANT_STORE_DATABASE'
	@echo '           deb: a Debian package, in BUILD/deb'
	@echo '           dist: the last commit as BUILD/plant-store-VERSION.tar.gz'
	@echo '           Both write SHA-256 sums, *.sha256, beside what they make'
	@echo 'Variables: BUILD=build  folder of everything that is made'
	@echo '           SAN=         address,undefined or thread'
	@echo '           WERROR=1     warnings are errors'
	@echo '           V=1          prints the commands'
	@echo '           CC CPPFLAGS CFLAGS LDFLAGS LDLIBS'
	@echo '           PREFIX=/usr/local DESTDIR='
	@echo "           MAINTAINER=  'NAME <ADDRESS>' of who builds a package for others"

-include $(OBJECTS:.o=.d)
