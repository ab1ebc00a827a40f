"""A server of a small model: 40 requests a second by the clock, one after the other, each some 4 ms alone.

A request's latency counts from the moment at which it should have come, also where the one before is not answered yet.
When it parks, it adds to COUNTER.lat, for each request, two 64-bit words: that moment, and the latency, ns.
"""
import array
import time

from protocol import Page

page = Page()
import torch
from models import blocks

PERIOD_NS = 25_000_000
# Many small launches, which take the processor longer than the GPU.
LAYERS, WIDTH, HEADS, BATCH, LENGTH = 36, 768, 12, 4, 128


class Server:
    """Its schedule, and what each request took."""

    def __init__(self, answer):
        self.answer, self.next, self.took = answer, None, array.array("Q")

    def begin(self):
        self.next = time.monotonic_ns() + PERIOD_NS

    def step(self):
        wait = self.next - time.monotonic_ns()
        if wait > 0:
            time.sleep(wait / 1e9)
        self.answer()
        self.took.extend((self.next, time.monotonic_ns() - self.next))
        self.next += PERIOD_NS
        page.done()

    def drain(self):
        """Who waits for an answer has waited so long already."""
        now = time.monotonic_ns()
        while self.next and self.next < now:
            self.took.extend((self.next, now - self.next))
            self.next += PERIOD_NS
        self.next = None
        with open(f"{page.path}.lat", "ab") as file:
            self.took.tofile(file)
        del self.took[:]


@torch.no_grad()
def main():
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda"):
        model = blocks(LAYERS, WIDTH, HEADS).eval()
    asked = torch.randn(BATCH, LENGTH, WIDTH).pin_memory()

    def answer():
        model(asked.cuda(non_blocking=True))[:, 0].float().cpu()

    for _ in range(20):
        answer()
    server = Server(answer)
    page.run(server.step, server.drain, server.begin)


if __name__ == "__main__":
    main()
