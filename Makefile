# The commands a person types. Everything lives in .venv, installed with the pins of constraints.txt.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed

INSTALL := -m pip install --disable-pip-version-check --progress-bar off -c constraints.txt

# a file's tests stay in one process, in the order of collection: tests that wait come first
TESTS := HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

.PHONY: report test test-all test-tenth coverage test-adapters lint bench networks networks-left dist pages pictures docs venv

## The main job: measure the bundled model on the bundled text, compare with the theory, write the report
report: venv
	$(BIN)/posbias report

## The tests, in two processes: without the slow ones and the large model, properties on fewer examples
test: venv
	$(TESTS) -m "not slow and not real_model" --hypothesis-profile=quick

## All tests; llama-cpp-python's server is built once, and where that fails its test is skipped
test-all: venv .venv-server/.tried
	$(TESTS)

.venv-server/.tried:
	$(PYTHON) -m venv .venv-server
	-CMAKE_ARGS=-DLLAVA_BUILD=OFF .venv-server/bin/python $(INSTALL) "llama-cpp-python[server]==0.3.36"
	touch $@

## A tenth of what `make test` leaves out, as the gate runs it: TENTH is 0 to 9, another one each day
test-tenth: venv
	TENTH=$${TENTH:-$$(( $$(date +%s) / 86400 % 10 ))} $(TESTS) -m "slow or real_model" --hypothesis-profile=quick

## What of the package the tests run, by file; compiled code and other processes count as not run
coverage: venv
	$(TESTS) -m "not slow and not real_model" --hypothesis-profile=quick --cov=posbias --cov-report=term:skip-covered

## LangChain, LlamaIndex and Haystack with our adapters, attention of TransformerLens and nnsight, in an environment of their own
test-adapters: .venv-adapters/.installed
	HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 .venv-adapters/bin/python -m pytest tests/adapters

.venv-adapters/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv-adapters
	.venv-adapters/bin/python $(INSTALL) "pip>=25.1"
	.venv-adapters/bin/python $(INSTALL) --group adapters -e ".[langchain,llama-index,haystack]" -e papers
	touch $@

lint: venv
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/pyright
	$(BIN)/lint-imports

## Speed, as ratios against the plain algorithm in the same run
bench: venv
	HF_HUB_OFFLINE=1 $(BIN)/python -m pytest benchmarks --benchmark-disable-gc --benchmark-columns=median,iqr,rounds -q -s

## Networks of Wu et al. that are not on record yet, at the paper's iterations, at low priority; resumes after anything
networks: venv
	OMP_NUM_THREADS=1 nice -n 10 $(BIN)/python -m posbias_papers.wu2025.networks

## How many of them are left
networks-left: venv
	@$(BIN)/python -m posbias_papers.wu2025.networks left

## What a release consists of, with hashes
dist: venv
	$(BIN)/python -m build --no-isolation --outdir dist
	$(BIN)/python -m build --no-isolation --outdir dist papers
	cd dist && sha256sum posbias*

## The pages that commands make, in docs/made: every figure and claim of the papers (an hour and a half), what is known of families
pages: venv
	$(BIN)/posbias paper all --report --out docs/made
	$(BIN)/python -m posbias_papers.theorems docs/made
	HF_HUB_OFFLINE=1 $(BIN)/python tools/families.py
	HF_HUB_OFFLINE=1 PYTHONPATH=tests/support:tools $(BIN)/python tests/support/zoo.py

## The pictures of the documents, in docs/img: those of scripts and records in minutes, those that measure or train in an hour
pictures: venv
	cd docs/img && for file in *.py; do ../../$(BIN)/python $$file || exit 1; done
	PYTHONPATH=tests/support $(BIN)/python -c "from project import *; exec(''.join(blocks('python', ROOT / 'docs/figures.md')))"
	cp build/figures/*.png docs/img
	$(BIN)/posbias study run docs/studies/dimension.toml
	$(BIN)/posbias study show docs/studies/dimension.toml --plot docs/img/study.png
	for name in influence designed predictors; do $(BIN)/posbias paper extensions $$name --out build || exit 1; done
	cp build/extensions/influence.png build/extensions/designed.png docs/img
	cp build/extensions/predictors.png docs/img/parts.png
	$(BIN)/posbias report --out build/report
	cp build/report/predictors.png docs/img
	$(BIN)/posbias paper herasimchyk2026 fig1 --models smollm2-135m --out build
	cp build/fig1.png docs/img/mixing_by_length.png
	$(BIN)/posbias paper wu2025 fig3 --out build
	cp build/fig3.png docs/img/asked_first_or_last.png
	$(BIN)/posbias measure smollm2-135m --tokens 40 --prompts 64 --rollouts energy --out build/m40.nc
	$(BIN)/posbias retrieve smollm2-135m --prompts 200 --measurement build/m40.nc --out build/retrieve
	cp build/retrieve/retrieval.png docs/img
	$(BIN)/python -c "import posbias; from posbias.measurement import MeasurementJob; from posbias.reports import plots; \
		from posbias.remedies.knock_outs import by_head; from posbias.retrieval import retrieval_job; \
		how = {'job': MeasurementJob(tokens=128, prompts=4), 'trials': retrieval_job(length=128, positions=3, prompts=4)}; \
		found = posbias.knock_out('smollm2-135m', **how); maps = {name: by_head(found, name) for name in ('loss', 'first', 'last')}; \
		plots.save_figure(plots.heads_figure(maps), 'docs/img/heads.png')"

## The site, in build/site: notebooks run, warnings are errors, links within are checked
docs: .venv/.docs
	$(BIN)/python -m posbias_papers.theorems docs/made
	HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 $(BIN)/python -m sphinx -q -E -W --keep-going docs build/site

.venv/.docs: $(STAMP)
	$(BIN)/python $(INSTALL) --group docs
	touch $@

venv: $(STAMP)

$(STAMP): pyproject.toml papers/pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "posbias needs Python 3.11 or newer, this is " + sys.version)'
	$(PYTHON) -m venv .venv
	$(BIN)/python $(INSTALL) "pip>=25.1"
	$(BIN)/python $(INSTALL) --group dev -e ".[all]" -e papers
	touch $(STAMP)
