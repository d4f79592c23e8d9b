"""What a fit returns: means, variances and samples of the function."""
