//! Small-file site: files below the threshold.
