"""Real programs of shared/corpus, compiled, beside XLA:CPU on made-up inputs.

All are run by XLA in one child process. The two image models (`slow`) run their full batch on one
device; sharding annotations are dropped.
"""

from pathlib import Path

import pytest

from hlo import driver
from hlo.tools.cases.fill import fill_elided
from hlo.tools.cases.inputs import made_up_inputs
from hlo.tools.comparison import check
from tests.support import xla_child

CORPUS = next(
    (p / "shared" / "corpus" for p in Path(__file__).resolve().parents if (p / "shared").is_dir()),
    Path("missing"),
)
PREFIX = "backends__cpu__benchmarks__hlo__"
FILES = [
    "layer_norm_1x4096x768_bf16",
    "dlrm_keras_jax_f32_test_step",
    "dlrm_keras_jax_f32_train_step",
    "bench_mass_matrix_35",
    "jax.b380442861",
    "depthwise_conv_3x3_1x256x56x56_bf16",
    "jax.issue.33666.linx.frag_0100.module_0005",
    "jax.issue.33666.linx.frag_0100.module_0019",
    "jax.issue.33666.linx.frag_0428.module_0009",
    "jax.issue.33666.linx.slow_0100.module_0013",
    "jax.issue.33666.linx.slow_0428.module_0003",
    "jax.issue.33666.linx.slow_0428.module_0006",
]
MODELS = ["vision_diffusion__vit__inference", "vision_diffusion__resnet50__inference"]


@pytest.fixture(autouse=True)
def one_child(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "run_in_child", xla_child.run_in_child)


def assert_agrees_with_xla(path: Path) -> None:
    pytest.importorskip("jaxlib", reason="the oracle extra is not installed")
    module = driver.parse(path.read_text(), path.name)
    if "num_partitions" in module.attributes:
        module = driver.optimize(module, "sharding-remover")
    module = fill_elided(module)
    # Inputs that keep results in range: of others, XLA's sums of products that cancel may be
    # further from the exact ones than two f32 results should be apart.
    values = made_up_inputs(module, "model")
    executable = driver.compile(module, cache=False)
    report = check.compared(module, values, executable(*values), "jax", rerun=executable)
    assert report.passed, report.text


@pytest.mark.oracle
@pytest.mark.corpus
@pytest.mark.skipif(not CORPUS.is_dir(), reason="shared/corpus is not there")
@pytest.mark.parametrize("name", FILES)
def test_program(name: str) -> None:
    assert_agrees_with_xla(CORPUS / "files" / f"{PREFIX}{name}.hlo")


@pytest.mark.slow
@pytest.mark.oracle
@pytest.mark.corpus
@pytest.mark.skipif(not CORPUS.is_dir(), reason="shared/corpus is not there")
@pytest.mark.parametrize("name", MODELS)
def test_model(name: str) -> None:
    (path,) = (CORPUS / "models").glob(f"{name}*")
    assert_agrees_with_xla(path)
