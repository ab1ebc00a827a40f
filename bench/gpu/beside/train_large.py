"""Training with large matrices in bf16. It keeps the GPU busy, and asks for the loss at every tenth step."""
from protocol import Page

page = Page()
import torch
from models import train
from torch.nn import functional

# Some 14 TFLOP a step: 25 ms of an H200.
WIDTH, INNER, PARTS, BATCH = 4096, 16384, 4, 4096


class Part(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = torch.nn.Linear(WIDTH, INNER, bias=False), torch.nn.Linear(INNER, WIDTH, bias=False)

    def forward(self, x):
        return x + self.down(functional.gelu(self.up(x)))


def main():
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda"):
        model = torch.nn.Sequential(*[Part() for _ in range(PARTS)])
        data, target = torch.randn(BATCH, WIDTH), torch.randn(BATCH, WIDTH)
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
    train(page, lambda: functional.mse_loss(model(data), target), optimiser, warm_up=3)


if __name__ == "__main__":
    main()
