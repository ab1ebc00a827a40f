"""What the PyTorch programs have in common: a transformer's block, and counting steps when the GPU has ended them."""
import collections

import torch
from torch.nn import functional

# Of these, eight programs fit on 16 processors.
torch.set_num_threads(2)
torch.set_num_interop_threads(1)
torch.manual_seed(1)
# A loop of training asks for the loss at each such step.
LOG = 10


class Block(torch.nn.Module):
    """Attention and two layers, as in most transformers, each call a launch of its own."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.before, self.between = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)
        self.three, self.out = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
        self.up, self.down = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)

    def forward(self, x):
        batch, length, width = x.shape
        query, key, value = self.three(self.before(x)).view(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        seen = functional.scaled_dot_product_attention(query, key, value)
        x = x + self.out(seen.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(functional.gelu(self.up(self.between(x))))


def blocks(layers, width, heads):
    return torch.nn.Sequential(*[Block(width, heads) for _ in range(layers)])


def train(page, lose, optimiser, warm_up=5):
    """Steps of training that are launched ahead, as in a loop that logs the loss now and then. `lose` gives it."""
    behind, number = Behind(page), 0

    def step(count=True):
        nonlocal number
        loss = lose()
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        optimiser.step()
        if count:
            behind.launched()
        number += 1
        if number % LOG == 0:
            loss.item()

    for _ in range(warm_up):
        step(count=False)
    page.run(step, behind.drain)


class Behind:
    """Counts steps that were launched ahead, by an event behind each."""

    def __init__(self, page):
        self.page, self.events = page, collections.deque()

    def launched(self):
        event = torch.cuda.Event()
        event.record()
        self.events.append(event)
        self.count()

    def count(self):
        while self.events and self.events[0].query():
            self.events.popleft()
            self.page.done()

    def drain(self):
        torch.cuda.synchronize()
        self.count()
