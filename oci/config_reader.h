// ObjectReader with the types that config.json has beside: signed numbers, optional members, arrays
// of objects.
#pragma once

#include <concepts>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "oci/json.h"

namespace hutch::oci {

class ConfigReader : public ObjectReader {
 public:
  using ObjectReader::ObjectReader;

  // Any integer that *out can hold.
  template <std::integral T>
  ConfigReader& Integer(const char* name, T* out) {
    const Json* member = Member(name);
    if (member == nullptr) return *this;
    if (member->is_number_unsigned()) {
      const auto value = member->get<uint64_t>();
      if (value > static_cast<uint64_t>(std::numeric_limits<T>::max()))
        Fail(name, "is out of range");
      else
        *out = static_cast<T>(value);
    } else if (member->is_number_integer()) {
      const auto value = member->get<int64_t>();
      if (std::unsigned_integral<T> || value < static_cast<int64_t>(std::numeric_limits<T>::min()))
        Fail(name, "is out of range");
      else
        *out = static_cast<T>(value);
    } else {
      Fail(name, "must be an integer");
    }
    return *this;
  }
  template <std::integral T>
  ConfigReader& Integer(const char* name, std::optional<T>* out) {
    T value{};
    if (Member(name) == nullptr) return *this;
    Integer(name, &value);
    *out = value;
    return *this;
  }
  ConfigReader& OptionalBool(const char* name, std::optional<bool>* out) {
    bool value = false;
    if (Member(name) == nullptr) return *this;
    Bool(name, &value);
    *out = value;
    return *this;
  }
  Status End() { return Done(Unknown::kIgnore); }
};

inline constexpr size_t kMostItems = 4096;  // of any array of objects in config.json

// parse(item, path) for each member of the array `name` of the object.
template <class T, class Parse>
Status ParseArray(ConfigReader& reader, const char* name, std::vector<T>* out, Parse parse) {
  const Json* array = reader.Member(name);
  if (array == nullptr) return OkStatus();
  const std::string path = reader.PathOf(name);
  if (!array->is_array() || array->size() > kMostItems)
    return Error{.code = Code::kInvalidArgument,
                 .what = path + " must be an array of at most " + std::to_string(kMostItems),
                 .field = path};
  for (size_t i = 0; i < array->size(); ++i) {
    ASSIGN_OR_RETURN(T one, parse((*array)[i], path + "[" + std::to_string(i) + "]"));
    out->push_back(std::move(one));
  }
  return OkStatus();
}

}  // namespace hutch::oci
