"""The posterior distribution: Gibbs sampling, multiple imputation and pooling."""
