//! Directory site: name entries and attribute cells.
