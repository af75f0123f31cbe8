import subprocess
import sys

START = """
import gc
from textcapsules.base.collector import collector_paused
def state(): return gc.isenabled(), gc.get_freeze_count()
"""


def run(code: str) -> None:
    """Run code in a process of its own: what it leaves alone stays so."""
    subprocess.run([sys.executable, "-c", START + code], check=True)


def test_the_collector_is_paused_and_then_leaves_alone_what_is_there() -> None:
    run("""
with collector_paused():
    inside = state()
    kept = [[] for _ in range(1000)]
is_on, frozen = state()
assert inside == (False, 0)
assert is_on and frozen > 1000
""")


def test_a_collector_that_was_off_stays_off() -> None:
    run("""
gc.disable()
with collector_paused():
    pass
assert not state()[0]
""")


def test_it_is_on_again_after_an_error() -> None:
    run("""
try:
    with collector_paused():
        import no_such_module
except ModuleNotFoundError:
    pass
assert state()[0]
""")


def test_garbage_of_later_commands_in_the_same_process_is_not_kept() -> None:
    run("""
import weakref
class Node: pass
with collector_paused():
    pass
node = Node()
node.itself, seen = node, weakref.ref(node)
del node
with collector_paused():
    pass
gc.collect()
assert seen() is None
""")
