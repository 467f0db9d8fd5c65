# The two commands of the README are `make run` and `make test`. This file only brings the tools
# that the project's own chores (`cargo xtask`) are built with; everything else is done there.

CARGO_BIN := $(if $(CARGO_HOME),$(CARGO_HOME),$(HOME)/.cargo)/bin
export PATH := $(PATH):$(CARGO_BIN)

# Where the library for C goes.
PREFIX ?= /usr/local

# Words before a command that make root run it.
AS_ROOT := $$([ "$$(id -u)" = 0 ] || echo sudo)

.PHONY: help run test install clean-quickstart bench tools

help:
	@echo 'make run               mount a pool with something real in it, and show a snapshot'
	@echo 'make test              run everything that CI runs'
	@echo 'make install           install marram, its mount helpers, manual pages and the library for C (as root)'
	@echo 'make bench             compare with other file systems (as root)'
	@echo 'make clean-quickstart  unmount and remove the pool that make run made'

run: tools
	@cargo xtask quickstart

test: tools
	@cargo xtask ci

install: tools
	@cargo build --locked --release --package marram --package marram-client-c
	@$(AS_ROOT) target/release/marram install
	@$(AS_ROOT) bindings/c/install.sh $(PREFIX) target/release

bench: tools
	@cargo xtask bench

clean-quickstart: tools
	@cargo xtask quickstart --clean

# A C compiler and cargo, installed if they are missing.
tools:
	@command -v cc >/dev/null || { \
	    command -v apt-get >/dev/null \
	        || { echo 'error: no C compiler, and this is not Debian: install one' >&2; exit 1; }; \
	    echo 'installing build-essential'; \
	    { $(AS_ROOT) apt-get update -qq && $(AS_ROOT) apt-get install -y -qq build-essential; } \
	        || { echo 'error: install a C compiler: apt-get install build-essential' >&2; exit 1; }; \
	}
	@command -v cargo >/dev/null || { \
	    command -v curl >/dev/null || $(AS_ROOT) apt-get install -y -qq curl ca-certificates; \
	    echo 'installing Rust with rustup'; \
	    curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh -s -- -y --profile minimal; \
	    [ -x "$(CARGO_BIN)/cargo" ] \
	        || { echo 'error: no cargo: install Rust from https://rustup.rs' >&2; exit 1; }; \
	}
