// A file that becomes visible whole or not at all.
#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <optional>
#include <string>

#include "base/result.h"
#include "base/unique_fd.h"
#include "files/open.h"
#include "oci/json.h"

namespace hutch::files {

enum class IfExists { kReplace, kRefuse };

// What must hold of the file that is there; see StartNewFile.
struct Conditions {
  IfExists if_exists = IfExists::kReplace;
  std::string if_match = {};        // its entity tag, or "*" for any; empty: none asked for
  std::optional<mode_t> mode = {};  // else that of the file replaced, else 0644
};

class NewFile {
 public:
  // Begins a file for `place`, nameless until Publish() (O_TMPFILE), or under a temporary name
  // where the file system has no such files. Refuses at once what Publish() would: a directory or
  // special file in its place, one that the caller could not write to, kExists, and
  // kPreconditionFailed for another entity tag.
  static Result<NewFile> Start(Place place, Conditions conditions);
  NewFile(NewFile&&) = default;
  NewFile& operator=(NewFile&&) = delete;
  ~NewFile();  // a file that was not published leaves nothing

  int fd() const { return fd_.get(); }
  bool replaces() const { return replaces_; }
  // Checks the conditions again, sets the mode, and puts the file in its place with one rename.
  // Returns its entry.
  Result<oci::Json> Publish();

 private:
  NewFile(Place place, Conditions conditions)
      : place_(std::move(place)), conditions_(std::move(conditions)) {}
  Status Check();
  Status Open();
  Status GiveName();

  Place place_;
  Conditions conditions_;
  UniqueFd fd_;
  std::string temporary_name_ = {};  // empty: it has no name
  bool replaces_ = false;
  mode_t mode_ = 0644;
};

}  // namespace hutch::files
