// One file request run in this process, with pipes or files for its descriptors.
#pragma once

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <string>
#include <vector>

#include "files/operations.h"
#include "oci/json.h"
#include "tests/base/temp_dir.h"

namespace hutch::files {

struct Answer {
  int exit_code = -1;
  std::vector<oci::Json> lines;
  std::string bytes;

  // The value of the only line of this kind; fails the test when there is none.
  oci::Json One(const std::string& kind) const;
  std::vector<oci::Json> All(const std::string& kind) const;
  oci::Json ok() const { return One("ok"); }
  // "" when the request did not fail.
  std::string code() const;
};

// Runs `request` with `input` as what arrives.
Answer Ask(const oci::Json& request, const std::string& input = "");

class FilesTest : public testing::Test {
 protected:
  std::string At(const std::string& name) const { return dir_ / name; }
  void Put(const std::string& name, const std::string& bytes, mode_t mode = 0644) const;
  std::string Get(const std::string& name) const;
  // The names in the directory, joined by spaces.
  std::string Names(const std::string& name = ".") const;
  Answer Op(const char* op, const std::string& name, oci::Json more = oci::Json::object(),
            const std::string& input = "") const;

  TempDir dir_;
};

}  // namespace hutch::files
