// Strict, bounded JSON reading: the one door through which JSON text enters the program. The
// nlohmann library is used through this folder only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace hutch::oci {

using Json = nlohmann::json;
using OrderedJson = nlohmann::ordered_json;  // members in the order they were added

struct JsonLimits {
  size_t max_bytes = 1u << 20;
  size_t max_depth = 64;
};

// Parses exactly one JSON value. Refused: more than max_bytes (kTooLarge), deeper than max_depth,
// duplicate keys in one object, invalid UTF-8, NaN, comments, anything behind the value (all
// kInvalidArgument, with the byte position).
Result<Json> ParseJson(std::string_view text, const JsonLimits& limits = {});

// Compact text; invalid UTF-8 in strings becomes U+FFFD, so that it never fails.
std::string PrintJson(const Json& value);

// Reads the members of one JSON object by name and type. The first error is kept with the field's
// JSON path
// ("limits.memory_bytes"), later reads are no-ops; ask Done() at the end. Absent members and null
// leave *out untouched.
class ObjectReader {
 public:
  // `path` is where the object stands in the document: "" for the top. A value that is not an
  // object is an error.
  ObjectReader(const Json& object, std::string path);

  ObjectReader& String(const char* name, std::string* out, size_t max_bytes = 65536);
  ObjectReader& Bool(const char* name, bool* out);
  ObjectReader& Uint(const char* name, uint64_t* out, uint64_t min = 0, uint64_t max = UINT64_MAX);
  ObjectReader& Number(const char* name, double* out, double min, double max);
  ObjectReader& Strings(const char* name, std::vector<std::string>* out, size_t max_count = 4096);
  ObjectReader& StringMap(const char* name, std::map<std::string, std::string>* out,
                          size_t max_count = 4096);
  // The member itself when present and not null, else nullptr. Counts as known.
  const Json* Member(const char* name);
  std::string PathOf(const char* name) const;
  void Fail(const char* name, std::string message);  // records an error at a member

  // kInvalidArgument for the first error; with kRefuse also for any member that was never asked for
  // ("unknown field").
  enum class Unknown { kIgnore, kRefuse };
  Status Done(Unknown unknown);

 private:
  const Json* Find(const char* name);
  const Json* object_;
  std::string path_;
  std::vector<std::string> known_;
  std::optional<Error> error_;
};

}  // namespace hutch::oci
