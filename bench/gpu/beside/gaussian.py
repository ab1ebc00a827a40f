"""GPyTorch: steps of fitting an exact Gaussian process to 2000 points. Many small kernels of linear algebra, each waited for."""
from protocol import Page

page = Page()
import gpytorch
import models
import torch

POINTS = 2000


class Process(gpytorch.models.ExactGP):
    def __init__(self, x, y, likelihood):
        super().__init__(x, y, likelihood)
        self.mean_module = gpytorch.means.ConstantMean()
        self.covar_module = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())

    def forward(self, x):
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


def main():
    x = torch.linspace(0, 1, POINTS, device="cuda")
    y = torch.sin(x * 12) + torch.randn(POINTS, device="cuda") * 0.2
    likelihood = gpytorch.likelihoods.GaussianLikelihood().cuda()
    model = Process(x, y, likelihood).cuda().train()
    score = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.02)

    def once():
        optimiser.zero_grad()
        loss = -score(model(x), y)
        loss.backward()
        optimiser.step()
        loss.item()

    page.run_each(once)


if __name__ == "__main__":
    main()
