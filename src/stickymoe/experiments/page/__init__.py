"""What the interactive pages share: plotly.js put in once, plots that follow theme, width and printer, templates."""
