// For tests that open more than a login's 1,024 files.
#pragma once

#include <gtest/gtest.h>
#include <sys/resource.h>

namespace hutch {

// This process may open as many files as its hard limit says.
inline void RaiseOpenFiles() {
  struct rlimit files {};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &files), 0);
  files.rlim_cur = files.rlim_max;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &files), 0);
}

}  // namespace hutch
