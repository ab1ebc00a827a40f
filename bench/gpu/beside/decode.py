"""A decoder, token by token: a CUDA graph for each token, and a wait for it, as a server of language models does."""
from protocol import Page

page = Page()
import torch
import models
from torch.nn import functional

# 2.5 GB of weights and 3.2 GB of keys and values are read for a token: some 2.5 ms of an H200.
WIDTH, HEADS, LAYERS, BATCH, LENGTH, WORDS = 2048, 16, 24, 8, 2048, 32000


class Layer(models.Block):
    """A block with the keys and values of the text so far."""

    def __init__(self):
        super().__init__(WIDTH, HEADS)
        for name in ("keys", "values"):
            self.register_buffer(name, torch.randn(BATCH, HEADS, LENGTH, WIDTH // HEADS))

    def forward(self, x, position):
        query, key, value = self.three(self.before(x)).view(BATCH, 3, HEADS, 1, WIDTH // HEADS).unbind(1)
        self.keys.index_copy_(2, position, key)
        self.values.index_copy_(2, position, value)
        seen = functional.scaled_dot_product_attention(query, self.keys, self.values)
        x = x + self.out(seen.reshape(BATCH, WIDTH))
        return x + self.down(functional.gelu(self.up(self.between(x))))


@torch.no_grad()
def main():
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda"):
        layers = [Layer() for _ in range(LAYERS)]
        embedding, head = torch.nn.Embedding(WORDS, WIDTH), torch.nn.Linear(WIDTH, WORDS, bias=False)
        token, position = torch.zeros(BATCH, dtype=torch.long), torch.zeros(1, dtype=torch.long)

    def one():
        x = embedding(token)
        for layer in layers:
            x = layer(x, position)
        token.copy_(head(x).argmax(-1))
        position.add_(1).remainder_(LENGTH)

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            one()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        one()

    def once():
        graph.replay()
        torch.cuda.synchronize()
        token[0].item()

    page.run_each(once)


if __name__ == "__main__":
    main()
