# Two commands: `make demo` shows the main job, `make test` tests it. Both set up what is missing first. The rest is CMake.
#
#   make            builds build/chunkkv           make deps       installs missing system packages
#   make demo       answers a question from a document with a tenth of the cache, beside the full cache
#   make test       the quick tests                make check-all  all of them: sanitizers, clang, lint, both models
#   make bench      benchmarks into bench/results  make eval       what answers lose, into bench/results/eval (hours)
#   make install    to PREFIX (/usr/local)

SHELL := /bin/sh
CACHE := $(or $(CHUNKKV_CACHE),$(or $(XDG_CACHE_HOME),$(HOME)/.cache)/chunkkv)
# A CMake that deps.sh had to bring itself lives there.
export PATH := $(CACHE)/tools/bin:$(PATH)
PREFIX ?= /usr/local
JOBS ?= $(shell nproc 2>/dev/null || echo 2)
# A GGUF model of your own: make demo MODEL=file.gguf
MODEL ?=

.PHONY: all deps build demo test check-all sanitize clang lint lint-format format bench eval install uninstall clean

all: build

deps:
	@scripts/deps.sh

build: deps
	@cmake --preset release >/dev/null
	@out=$$(cmake --build --preset release -j $(JOBS) 2>&1) || { printf '%s\n' "$$out"; exit 1; }

demo: build
	@model="$(MODEL)"; [ -n "$$model" ] || model=$$(scripts/fetch-model.sh) || exit 1; scripts/demo.sh build/chunkkv "$$model"

test: build
	@scripts/fetch-model.sh >/dev/null
	@ctest --preset release -LE slow -j $(JOBS)

# Everything: both models, sanitizers on all that needs no model, clang with warnings as errors, formatting and clang-tidy.
check-all:
	@scripts/deps.sh check
	@$(MAKE) --no-print-directory build
	@scripts/fetch-model.sh >/dev/null && scripts/fetch-model.sh gemma3 >/dev/null
	@$(MAKE) --no-print-directory lint clang sanitize
	@ctest --preset release

sanitize: deps
	@for preset in asan tsan; do \
		cmake --preset $$preset >/dev/null && cmake --build --preset $$preset -j $(JOBS) >/dev/null && \
		ctest --preset $$preset -j $(JOBS) || exit 1; \
	done

clang: deps
	@cmake --preset clang >/dev/null && cmake --build --preset clang -j $(JOBS) >/dev/null && ctest --preset clang -j $(JOBS)

sources = $(shell git ls-files '*.c' '*.h')

lint-format:
	@clang-format --dry-run --Werror $(sources)

lint: lint-format
	@clang-tidy --quiet -p build $(filter-out tests/%,$(filter %.c,$(sources))) 2>/dev/null

format:
	@clang-format -i $(sources)

bench: build
	@model=$$(scripts/fetch-model.sh) && scripts/bench.sh "$$model"

eval: build
	@model=$$(scripts/fetch-model.sh) && scripts/eval.sh "$$model"

install: build
	@cmake --install build --prefix "$(PREFIX)"

uninstall:
	@xargs -r -d '\n' rm -f <build/install_manifest.txt

clean:
	@rm -rf build build-*
