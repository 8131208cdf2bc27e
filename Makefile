# labmates: `make run` shows it at work, `make test` is everything CI runs.
#
# One recipe is one shell (.ONESHELL), so what a step finds out is there for the next.
# Nothing here depends on the caller's shell, git variables or Python settings.

SHELL := /bin/sh
.SHELLFLAGS := -euc
.ONESHELL:
.NOTPARALLEL:
.DEFAULT_GOAL := help
.PHONY: help run test lint lua bench stress docs clean

unexport $(filter GIT_% PYTHON% PIP_TARGET PIP_PREFIX PIP_USER PIP_ROOT,$(.VARIABLES))
unexport VIRTUAL_ENV CONDA_PREFIX MAKEFLAGS MFLAGS MAKELEVEL GNUMAKEFLAGS CDPATH ENV BASH_ENV

VENV := .venv
BIN := $(VENV)/bin
CANDIDATES := python3 python3.13 python3.12 python3.11 python
ROOMS := contracts quota roles projection demo

# $(call prepare,EXTRAS): .venv holds labmates with these extras. The stamp names the folder and
# the digest of pyproject.toml, so that a moved clone or a changed list installs again, and
# nothing else does.
define prepare
want="$$(pwd -P) $$(cksum < pyproject.toml) $(1)"
if [ ! -x $(BIN)/labmates ] || ! $(BIN)/python -c "" 2>/dev/null \
    || ! grep -qxF "$$want" $(VENV)/labmates-stamp 2>/dev/null; then
  python=
  for name in $(CANDIDATES); do
    if "$$name" -c "import sys; sys.exit(sys.version_info < (3, 11))" 2>/dev/null; then
      python="$$name"; break
    fi
  done
  if [ -z "$$python" ]; then
    echo "labmates: needs Python 3.11 or newer, and none is on PATH (looked for: $(CANDIDATES))" >&2
    exit 5
  fi
  if ! "$$python" -c "import ensurepip, venv" 2>/dev/null; then
    echo "labmates: this $$python cannot make a venv; install it: apt-get install python3-venv" >&2
    exit 5
  fi
  rm -f $(VENV)/labmates-stamp
  if ! grep -qF " $$(pwd -P)/$(VENV)" $(VENV)/pyvenv.cfg 2>/dev/null \
      || ! $(BIN)/python -c "import sys; sys.exit(sys.version_info < (3, 11))" 2>/dev/null; then
    echo "labmates: making $(VENV) with $$python (once)" >&2
    "$$python" -m venv --clear $(VENV)
  fi
  echo "labmates: installing [$(1)] into $(VENV) (once)" >&2
  PIP_USER=0 $(BIN)/python -m pip install -qq --no-input --disable-pip-version-check \
    --only-binary :all: --editable ".[$(1)]" < /dev/null
  { for extras in $(2) $(1); do echo "$$(pwd -P) $$(cksum < pyproject.toml) $$extras"; done; } \
    > $(VENV)/labmates-stamp
fi
endef

# Debian packages that the suites need, each with the program that shows it is there.
define system_packages
missing=
for pair in git:git tmux:tmux redis-server:redis-server chromium:chromium luacheck:lua-check faketime:faketime; do
  command -v "$${pair%%:*}" > /dev/null 2>&1 || missing="$$missing $${pair##*:}"
done
if python3 -c "" 2>/dev/null && ! python3 -c "import ensurepip, venv" 2>/dev/null; then
  missing="$$missing python3-venv"
fi
if [ -n "$$missing" ]; then
  if [ "$$(id -u)" != 0 ] || ! command -v apt-get > /dev/null 2>&1; then
    for package in $$missing; do
      echo "labmates: missing $$package; install it: apt-get install $$package" >&2
    done
    echo "labmates: all at once, as root: apt-get update && apt-get install$$missing" >&2
    exit 5
  fi
  echo "labmates: installing by apt:$$missing" >&2
  # The suites start their own servers: Debian's must not start, now or at the next boot.
  policy=/usr/sbin/policy-rc.d
  if [ ! -e "$$policy" ]; then
    printf '#!/bin/sh\nexit 101\n' > "$$policy"
    chmod 755 "$$policy"
    trap 'rm -f "$$policy"' EXIT
    trap 'exit 130' INT TERM
  fi
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -qq < /dev/null >&2
  apt-get install -y -qq --no-install-recommends $$missing < /dev/null >&2
  case "$$missing" in
    *redis-server*) systemctl disable redis-server.service > /dev/null 2>&1 || true ;;
  esac
fi
endef

define checks
$(BIN)/ruff check .
$(BIN)/ruff format --check .
$(BIN)/mypy $(ROOMS) tests
$(BIN)/lint-imports
$(lua_check)
endef

define lua_check
$(BIN)/python -c "from contracts.store import library; print(library.source()[0], end='')" \
  > $(VENV)/labmates.lua
luacheck --quiet $(VENV)/labmates.lua
endef

define need_git
if ! command -v git > /dev/null 2>&1; then
  echo "labmates: needs git, and it is not on PATH; install it: apt-get install git" >&2
  exit 5
fi
endef

help: ## this list
	@sed -n 's/^\([a-z]*\):.*## /make \1\t/p' Makefile | expand -t 16

run: ## a real run on a toy problem, in a folder of its own (needs Python 3.11, git, make)
	@$(need_git)
	$(call prepare,demo)
	exec $(BIN)/labmates demo --execute --headless

test: ## everything CI runs: lint, then every test (installs what is missing when root)
	@$(system_packages)
	$(call prepare,demo$(,)test$(,)dev,demo)
	$(checks)
	exec $(BIN)/python -m pytest -n 2 --dist worksteal

lint: ## ruff, mypy, import rules, luacheck
	@$(system_packages)
	$(call prepare,demo$(,)test$(,)dev,demo)
	$(checks)

lua: ## luacheck alone, on the function library
	@$(lua_check)

bench: ## measurements of tests/bench, printed; no part of make test
	@$(system_packages)
	$(call prepare,demo$(,)test$(,)dev,demo)
	exec $(BIN)/python -m pytest -s -p no:randomly -o python_files='bench_*.py' tests/bench

stress: ## every test, those marked stress at their whole size
	@$(system_packages)
	$(call prepare,demo$(,)test$(,)dev,demo)
	exec env LABMATES_STRESS=1 $(BIN)/python -m pytest -n 2 --dist worksteal

docs: ## writes the generated tables of docs/ again
	@$(system_packages)
	$(call prepare,demo$(,)test$(,)dev,demo)
	exec $(BIN)/python -m tests.docs.tables

clean: ## removes .venv, caches and builds; no goal, store or workspace
	@rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .coverage
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

, := ,
