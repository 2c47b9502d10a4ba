# make report   from an empty clone to the report        make test   from an empty clone to passed tests
# STUDY=config/smoke.yaml chooses another study (as CONFIG= does), SCENARIOS=single of its scenarios these alone;
# MINUTES=60 says how long the study may take; RUNTIMES=system installs no container runtime.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := help
.PHONY: study-file help report smoke test test-quick faults setup setup-test doctor lock sbom audit docs reference reference-input clean clean-runtimes clean-cache

# Packages of another Python's are not for ours.
unexport PYTHONPATH PYTHONHOME

STUDY ?= $(or $(CONFIG),config/config.yaml)
CORES ?= all

# As Snakemake lays it over the study file.
OVER = $(if $(SCENARIOS),'scenarios=[$(SCENARIOS)]') $(if $(MINUTES),'minutes=$(MINUTES)')
ONLY = $(if $(strip $(OVER)),--config $(OVER))
PYTHON = $(eval PYTHON := $(shell sh tare/runtimes/find_python.sh 2>/dev/null))$(PYTHON)
NEED_PYTHON = test -n "$(PYTHON)" || { sh tare/runtimes/find_python.sh > /dev/null; exit 3; }
# Where the home is not writable, Snakemake keeps its files next to ours.
CACHES = test -z "$${TARE_CACHE:-}" || test -w "$${XDG_CACHE_HOME:-$$HOME}" || export XDG_CACHE_HOME="$$TARE_CACHE/others"
REPORT_PATH = import pathlib, sys; from tare.model.studies import layout, loading; \
	print(pathlib.Path(layout.results_folder(loading.load_checked(sys.argv[1]).study), "report", "index.html").resolve())

# A name that is mistyped on make's command line would change nothing, without a word.
KNOWN = STUDY CONFIG SCENARIOS MINUTES RUNTIMES CORES PYTHON WORKERS PYTEST_ARGS UPGRADE REFERENCE_PYTHON BUDGET_S NAME MORE ALL
GIVEN = $(foreach name,$(.VARIABLES),$(if $(filter command,$(origin $(name))),$(name)))
UNKNOWN := $(firstword $(filter-out $(KNOWN) TARE_% PIP_% UV_% %_proxy %_PROXY DOCKER_% SNAKEMAKE_PROFILE TMPDIR SHELL,$(GIVEN)))
NEAREST = import sys; from tare.model.words import nearest; print(nearest(sys.argv[1].upper(), sys.argv[2:]))
ifneq ($(UNKNOWN),)
$(error tare: make knows no variable $(UNKNOWN): $(or $(shell $(PYTHON) -c '$(NEAREST)' $(UNKNOWN) $(KNOWN) 2>/dev/null),(known: $(KNOWN))))
endif

help: ## the targets
	@sed -nE 's/^([a-z-]+):[^#]*## (.*)/  make \1\t\2/p' Makefile | expand -t 20

report: study-file setup ## environment, runtimes, data, images, runs, report (MINUTES=60: in about so long)
	@$(CACHES); .venv/bin/snakemake --cores $(CORES) --configfile "$(STUDY)" $(ONLY) -- all
	@echo "The report: $$(.venv/bin/python -c '$(REPORT_PATH)' "$(STUDY)")"

study-file: # said before the set-up, which takes a minute
	@$(NEED_PYTHON)
	@test -f "$(STUDY)" || { echo "tare: there is no study file $(STUDY): there are $$(grep -ls '^study:' config/*.yaml | xargs)" >&2; exit 2; }
	@grep -Eq '(^|[{,])[[:space:]]*"?study"?[[:space:]]*:' "$(STUDY)" || { echo "tare: $(STUDY): study missing: its results would be taken for those of the default study; give it its own name, as in \`study: mine\`" >&2; exit 2; }

smoke: ## the whole workflow on small settings
	@$(MAKE) report STUDY=config/smoke.yaml

# In three processes, which share the parts that tests/conftest.py names: on two processors, because many tests wait.
# Tests call make themselves; those calls must not see the options of this one.
WORKERS ?= 3
test: setup-test ## what the tests need, then those that meet everything at least once (ALL=1: all, as many as begin in MINUTES)
	@unset MAKEFLAGS MAKELEVEL ALL MINUTES PYTEST_ARGS; export TARE_TEST_ALL=$(ALL) TARE_TEST_MINUTES=$(MINUTES); \
		.venv/bin/python -m pytest --cache-clear -n $(WORKERS) $(PYTEST_ARGS) || .venv/bin/python tests/again.py $$?

# The validator of crates needs an older version of a package that .venv has.
CRATE_CHECKS = .venv/bin/uv venv --quiet --allow-existing --python .venv/bin/python .crate && \
	.venv/bin/uv pip install --quiet --python .crate/bin/python --require-hashes --requirement requirements/crate.txt

test-quick: ## unit tests without runtimes, images and network; it says what it leaves out
	@$(NEED_PYTHON)
	@RUNTIMES=system $(PYTHON) -m tare.runtimes.bootstrap test
	@$(CRATE_CHECKS)
	@.venv/bin/python -m pytest --quick -n $(WORKERS) tests/unit $(PYTEST_ARGS)

# Its runs call make themselves.
faults: setup ## disturb a small study in each stage; the next run must repair it (MINUTES=120; goes on when repeated)
	@unset MAKEFLAGS MAKELEVEL; .venv/bin/python benchmarks/faults.py $(if $(MINUTES),--minutes "$(MINUTES)")

setup: ## the virtual environment and the container runtimes
	@$(NEED_PYTHON)
	@$(PYTHON) -m tare.runtimes.bootstrap run

setup-test:
	@$(NEED_PYTHON)
	@$(PYTHON) -m tare.runtimes.bootstrap test
	@$(CRATE_CHECKS)

doctor: setup ## what this machine can measure
	@.venv/bin/python -m tare doctor

# uv resolves faster than pip and writes every file's hash, for each Python of requires-python; torch's CPU build comes
# from where pip is configured to look. While a version stays, its hashes stay, also those of missing files. The
# platform that the lock is for anyway is no marker of its lines.
LOCKED_FOR = platform_machine == 'x86_64' and platform_python_implementation == 'CPython' and sys_platform == 'linux'
lock: setup ## resolve requirements/*.in again (UPGRADE=1: to the newest versions)
	@export UV_FIND_LINKS="$$(.venv/bin/python -m pip config get global.find-links 2>/dev/null || true)"; \
	test -n "$$UV_FIND_LINKS" || export UV_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu UV_INDEX_STRATEGY=unsafe-best-match; \
	for name in run test uv sbom docs crate; do \
		.venv/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes $(if $(UPGRADE),--upgrade) \
			--custom-compile-command "make lock" --output-file requirements/$$name.txt requirements/$$name.in; \
		sed -i "s/ ; $(LOCKED_FOR)//; s/ and $(LOCKED_FOR)//" requirements/$$name.txt; \
	done

SBOM = results/sbom
SBOM_TOOLS = .venv/bin/uv venv --quiet --allow-existing --python .venv/bin/python .sbom && \
	.venv/bin/uv pip install --quiet --python .sbom/bin/python --require-hashes --requirement requirements/sbom.txt
sbom: setup ## CycloneDX lists of .venv, of each stack by its lock, and of the images that were built: results/sbom
	@$(SBOM_TOOLS)
	@mkdir -p $(SBOM)
	@.sbom/bin/cyclonedx-py environment --output-reproducible --output-file $(SBOM)/environment.json .venv/bin/python
	@for lock in containers/stacks/*/*.txt; do \
		name="$${lock#containers/stacks/}"; name="$${name%.txt}"; \
		.sbom/bin/cyclonedx-py requirements --output-reproducible --output-file "$(SBOM)/$${name/\//.}.json" "$$lock"; \
	done
	@.sbom/bin/python containers/sbom.py results/images $(SBOM)/images

audit: setup ## known vulnerabilities of the packages of .venv, by pip-audit, which asks PyPI
	@$(SBOM_TOOLS)
	@.sbom/bin/pip-audit --strict --disable-pip --require-hashes --requirement requirements/run.txt

docs: setup ## the documents as a site: results/site
	@.venv/bin/uv venv --quiet --allow-existing --python .venv/bin/python .docs
	@.venv/bin/uv pip install --quiet --python .docs/bin/python --require-hashes --requirement requirements/docs.txt
	@NO_MKDOCS_2_WARNING=1 .docs/bin/python -m mkdocs build --clean
	@echo "The site: $(CURDIR)/results/site/index.html"

# Needs no .venv: on a machine without a network it uses the Python that has the framework there.
REFERENCE_PYTHON ?= python3
BUDGET_S ?= 540
reference: export PYTHONPATH := $(PYTHONPATH)
reference: ## a reference campaign of this machine in ten minutes (NAME=folder, BUDGET_S=540, MORE=1 carries on)
	@$(REFERENCE_PYTHON) -m tare reference --budget-s "$(BUDGET_S)" $(if $(NAME),--out "results/reference/$(NAME)") $(if $(MORE),--more)

reference-input: setup ## .reference: what a machine without a network needs for `make reference`
	@.venv/bin/python -m tare pack-reference-input

# Nothing goes where a part would have to stay.
CLEANED = find . $(wildcard results) -mindepth 1 -maxdepth 1 \( -path ./.venv -o -path ./.snakemake -o -path './*.egg-info' \
	-o -path 'results/*' \) ! -path results/reference ! -path results/.gitkeep
REMOVABLE = sh -c 'test -w "$${1%/*}" && test -z "$$(find "$$1" -type d ! -writable ! -empty -print -quit 2>&1)"' sh
FIXED = can'\''t be removed by this user: its folder, or one in it, is read-only or another'\''s; mount it to be written, or ask its owner

clean: ## results and .venv; downloads and images in the cache stay
	@test -z "$(PYTHON)" || $(PYTHON) -m tare.runtimes.remove --check-folder .
	@fixed="$$($(CLEANED) ! -exec $(REMOVABLE) {} \; -print -quit 2>/dev/null || true)"; \
	test -z "$$fixed" || { echo "tare: nothing was removed: $$PWD/$${fixed#./} "'$(FIXED)' >&2; exit 2; }
	@$(CLEANED) -exec rm -rf {} +

clean-runtimes: ## remove what `make` installed on this machine, and our images from its Docker; what was there before stays
	@$(NEED_PYTHON)
	@$(PYTHON) -m tare.runtimes.remove

clean-cache: ## the cache as well, after asking
	@test -z "$(PYTHON)" || $(PYTHON) -m tare.runtimes.remove --check
	@cache="$${TARE_CACHE:-$${XDG_CACHE_HOME:-$$HOME/.cache}/tare}"; \
	test ! -e "$$cache" || { test -w "$$cache" && test -w "$$(dirname "$$cache")"; } \
		|| { echo "tare: nothing was removed: $$cache "'$(FIXED)' >&2; exit 2; }; \
	grep -q '"all": \[$$' "$$cache/runtimes/packages.json" 2>/dev/null \
		&& echo "The list of packages that we installed goes with it: make clean-runtimes removes those packages first"; \
	test ! -e "$$cache/runtimes/daemon-images.json" \
		|| echo "The list of our images in the machine's Docker goes with it: make clean-runtimes removes those images first"; \
	read -r -p "Delete $$cache? [y/N] " answer; if [ "$$answer" = y ]; then rm -rf "$$cache"; else echo "kept"; fi
