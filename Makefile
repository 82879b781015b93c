# make demo: set up, train and translate; make test: set up, run the tests. Both need only Python >= 3.11 and pip.
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin

.PHONY: setup demo test check bench-prepare bench-train bench-steps bench-translate bench-alignment bench-growth bench-startup bench-systems bench-saving bench-scaling bench-updates bench-layers bench-architectures bench-methods bench-serve bench-traffic bench-latency bench-markup bench-sentences bench-scripts bench-clean faults fuzz soak pins bits docs pages recording format clean

setup: $(VENV)/ready

# An existing .venv keeps its Python, unless that no longer runs, or PYTHON is given and has another version.
REBUILD := $(shell old="$$($(BIN)/python -V 2>/dev/null)" || echo rebuild; \
    $(if $(filter file,$(origin PYTHON)),,[ "$$old" = "$$($(PYTHON) -V 2>/dev/null)" ] || echo rebuild))

# Says why a Python cannot run nmt, and fails. Even Python 2 can read it.
define CHECK_PYTHON
import sys
name, version = sys.argv[1], "%d.%d" % sys.version_info[:2]
if sys.version_info < (3, 11):
    sys.exit("%s is Python %s, but nmt needs 3.11 or later; name one: make setup PYTHON=python3.12" % (name, version))
try:
    import ensurepip, venv
except ImportError:
    sys.exit("%s has no venv module; on Debian or Ubuntu: apt install python%s-venv" % (name, version))
endef
export CHECK_PYTHON

# torch is installed first and alone, so that constraints.txt decides its build.
$(VENV)/ready: pyproject.toml constraints.txt $(firstword $(REBUILD))
ifneq ($(REBUILD),)
	@$(PYTHON) -V >/dev/null 2>&1 || { echo "$(PYTHON) does not run; name a Python 3.11 or later: make setup PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -c "$$CHECK_PYTHON" "$(PYTHON)"
	$(PYTHON) -m venv --clear $(VENV)
endif
	@$(BIN)/python -c 'import pip' 2>/dev/null || $(BIN)/python -m ensurepip
	@echo "Installing PyTorch and the tools of nmt into $(VENV). With CUDA, the first installation downloads 3 GB."
	$(BIN)/python -m pip install --quiet -c constraints.txt torch
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[dev]'
	touch $@

.PHONY: rebuild
rebuild: ;

demo: setup
	PATH="$$(cd "$(BIN)" && pwd):$$PATH" NMT=nmt PYTHON=python bash recipes/toy/run.sh

# Two processes of one thread each; the tests of a file stay together, since they share fixtures.
test: check
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses $(or $(JOBS),2) --dist loadfile --no-loadscope-reorder

check: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

# make bench-prepare SOURCE=europarl.en.gz TARGET=europarl.fr.gz PAIRS="400000 4000000"
bench-prepare: setup
	$(BIN)/python benchmarks/prepare.py --source $(SOURCE) --target $(TARGET) --pairs $(or $(PAIRS),400000)

# make bench-train SOURCE=train.en TARGET=train.de VALID_SOURCE=dev.en VALID_TARGET=dev.de (in subwords), or with the peers'
# scripts: make bench-train BENCH=FOLDER WORK=WHERE_ITS_SETUP_RAN
bench-train: setup
	$(BIN)/python benchmarks/train.py $(if $(BENCH),--bench $(BENCH)) $(if $(WORK),--work $(WORK)) \
	    $(if $(SOURCE),--source $(SOURCE) --target $(TARGET) --valid-source $(VALID_SOURCE) --valid-target $(VALID_TARGET)) $(FLAGS)

# make bench-steps DATA=prepared-data [FLAGS="--tiny"]
bench-steps: setup
	$(BIN)/python benchmarks/steps.py --data $(DATA) $(FLAGS)

# make bench-translate TRAIN_SOURCE=train.en TRAIN_TARGET=train.de [SOURCE=test.en] [FLAGS="--shape base --vocabulary 32000"]: random models
# make bench-translate MODEL=model SOURCE=test.en [REFERENCE=test.de]; either with the peers' scripts: BENCH=FOLDER WORK=WHERE_ITS_SETUP_RAN
bench-translate: setup
	$(BIN)/python benchmarks/translate.py $(if $(MODEL),--model $(MODEL)) \
	    $(if $(TRAIN_SOURCE),--train-source $(TRAIN_SOURCE) --train-target $(TRAIN_TARGET)) \
	    $(if $(SOURCE),--source $(SOURCE)) $(if $(REFERENCE),--reference $(REFERENCE)) \
	    $(if $(BENCH),--bench $(BENCH)) $(if $(WORK),--work $(WORK)) $(FLAGS)

# make bench-methods SOURCE=train.en TARGET=train.de [FLAGS="--rounds 5"]
bench-methods: setup
	$(BIN)/python benchmarks/methods.py --source $(SOURCE) --target $(TARGET) $(FLAGS)

# make bench-serve MODEL=exported-model SOURCE=test.en [FLAGS="--clients 1 8 64"]
bench-serve: setup
	$(BIN)/python benchmarks/serve.py --model $(MODEL) --source $(SOURCE) $(FLAGS)

# make bench-traffic MODEL=exported-model SOURCE=test.en [FLAGS="--minutes 30"]
bench-traffic: setup
	$(BIN)/python benchmarks/traffic.py --model $(MODEL) --source $(SOURCE) $(FLAGS)

# make bench-latency MODEL=exported-model SOURCE=test.en [FLAGS="--beams 4 --rounds 6"]
bench-latency: setup
	$(BIN)/python benchmarks/latency.py --model $(MODEL) --source $(SOURCE) $(FLAGS)

# make bench-documents [FOLDERS="unpacked source distributions"] [MODEL=model]; also needs python-docx
bench-documents: setup
	$(BIN)/python benchmarks/documents.py $(FOLDERS) $(if $(MODEL),--model $(MODEL))

# make bench-markup MODEL=model SOURCE=test.en [FLAGS="--lines 500 --gold pairs.tsv"]
bench-markup: setup
	$(BIN)/python benchmarks/markup.py --model $(MODEL) --source $(SOURCE) $(FLAGS)

# make bench-sentences [DATA=FOLDER_OF_CORPORA] [FLAGS="--libraries FOLDER"]: the libraries to compare with are installed there by
# pip install --target FOLDER sentencex pysbd sentence-splitter
bench-sentences: setup
	$(BIN)/python benchmarks/sentences.py $(if $(DATA),--data $(DATA)) $(FLAGS)

# make bench-scripts [FLAGS="--only ko th --updates 400"]
bench-scripts: setup
	$(BIN)/python benchmarks/scripts.py $(FLAGS)

# make bench-clean CORPUS=tatoeba/en-de/train WRONG=tatoeba/en-fr/train [WORK=FOLDER] [FLAGS="--share 0.04"]
# with FLAGS="--train clean noisy cleaned --valid PREFIX --test PREFIX" it also trains a small model on each corpus
bench-clean: setup
	$(BIN)/python benchmarks/clean.py --corpus $(CORPUS) --wrong $(WRONG) --work $(or $(WORK),runs/clean) $(FLAGS)

# make bench-alignment [MODEL="runs/toy/model runs/other/model"] [FLAGS="--source test.en --target test.de --gold test.align"]
bench-alignment: $(if $(MODEL),setup,demo)
	$(BIN)/python benchmarks/alignment.py --model $(or $(MODEL),runs/toy/model) $(FLAGS)

bench-growth: setup
	$(BIN)/python benchmarks/growth.py $(FLAGS)

# make bench-systems [PRESETS="gnmt-small rnnsearch-small"] [FLAGS="--threads 2 --positions 16 64 256"]; FLAGS="--data DATA --minutes 4.5" trains
bench-systems: setup
	$(BIN)/python benchmarks/systems.py \
	    $(or $(PRESETS),bytenet-small convs2s-small deep-att-small gnmt-small moe-small rnnsearch-small) $(FLAGS)

# make bench-startup [MODEL=model] [FLAGS="--other CHECKOUT"]
bench-startup: setup
	$(BIN)/python benchmarks/startup.py $(if $(MODEL),--model $(MODEL)) $(FLAGS)

# make bench-saving DATA=prepared-data [FLAGS="--preset transformer-small --saves 60"]
bench-saving: setup
	$(BIN)/python benchmarks/saving.py --data $(DATA) $(FLAGS)

# make bench-updates OTHER=CHECKOUT [FLAGS="--preset gnmt-small transformer-tiny --criterion r-drop --vocabulary 32000"]
bench-updates: setup
	$(BIN)/python benchmarks/updates.py $(OTHER) $(FLAGS)

bench-scaling: setup
	$(BIN)/python benchmarks/scaling.py $(FLAGS)

# make bench-layers [FLAGS="--time --rounds 5"]
bench-layers: setup
	$(BIN)/python benchmarks/layers.py $(FLAGS)

bench-architectures: setup
	$(BIN)/python benchmarks/architectures.py $(FLAGS)

# docs/reliability.md: each file operation of each command fails once; takes an hour on one core. make faults [FLAGS="--every 10"]
faults: setup
	$(BIN)/python tests/faults/run.py --page docs/reliability.md $(FLAGS)

# Hours of training with random faults, and ten million lines of translation. make soak [FLAGS="--hours 0.1 --lines 100000"]
soak: setup
	$(BIN)/python tests/soak/run.py $(FLAGS)

# Every parser reads input from libFuzzer, for ten minutes in all. make fuzz [FLAGS="--seconds 3600 --parsers model pipeline"]
fuzz: setup
	$(BIN)/pip install --quiet -c constraints.txt -e '.[fuzz]'
	$(BIN)/python tests/fuzz/run.py $(FLAGS)

# tests/hygiene/pypi.json: what PyPI publishes of each package that constraints.txt and its extras install.
pins: setup
	$(BIN)/pip install --quiet --upgrade pip uv
	$(BIN)/python tests/hygiene/record_pins.py

# make bits OLD=FOLDER: compare every result of this checkout with that of another, bit by bit
bits: setup
	$(BIN)/python benchmarks/bits.py $(OLD) $(FLAGS)

# The pages of docs/ that are made from code, then the site of all pages: build/site/index.html. A broken link is an error.
docs: pages
	$(BIN)/python -m sphinx --fail-on-warning --keep-going --quiet --fresh-env -d build/doctrees -c docs . build/site
	@echo "the site is build/site/index.html"

pages: setup
	$(BIN)/python docs/generate.py

# docs/recording.md and its pictures; make recording CORPUS=FOLDER, which has train, valid and test as .en.gz and .de.gz
recording: setup
	$(BIN)/pip install --quiet -c constraints.txt -e '.[recording]'
	$(BIN)/python docs/record.py $(CORPUS)

format: setup
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache
