//! Sends each request to the right site or node.
