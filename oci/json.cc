#include "oci/json.h"

#include <algorithm>
#include <set>

#include "base/text.h"

namespace hutch::oci {
namespace {

// Builds the value while checking depth and duplicate keys, which nlohmann's own parser lets
// through.
class StrictSax : public nlohmann::json_sax<Json> {
 public:
  explicit StrictSax(size_t max_depth) : max_depth_(max_depth) {}
  bool null() override { return Add(nullptr); }
  bool boolean(bool v) override { return Add(v); }
  bool number_integer(number_integer_t v) override { return Add(v); }
  bool number_unsigned(number_unsigned_t v) override { return Add(v); }
  bool number_float(number_float_t v, const string_t&) override { return Add(v); }
  bool string(string_t& v) override { return Add(std::move(v)); }
  bool binary(binary_t&) override { return false; }
  bool start_object(std::size_t) override { return Open(Json::object()); }
  bool start_array(std::size_t) override { return Open(Json::array()); }
  bool end_object() override { return Close(); }
  bool end_array() override { return Close(); }
  bool key(string_t& k) override {
    if (stack_.back()->contains(k)) return Refuse("duplicate key \"" + k + "\"");
    key_ = std::move(k);
    return true;
  }
  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception&) override {
    return Refuse("malformed JSON at byte " + std::to_string(position));
  }
  Json root;
  std::string error;

 private:
  bool Refuse(std::string why) {
    if (error.empty()) error = std::move(why);
    return false;
  }
  Json* Place(Json v) {
    if (stack_.empty()) return &(root = std::move(v));
    Json& top = *stack_.back();
    if (top.is_array()) return &top.emplace_back(std::move(v));
    return &(top[key_] = std::move(v));
  }
  bool Add(Json v) { return Place(std::move(v)) != nullptr; }
  bool Open(Json v) {
    if (stack_.size() >= max_depth_)
      return Refuse("nested deeper than " + std::to_string(max_depth_));
    stack_.push_back(
        Place(std::move(v)));  // stays valid: a parent does not grow while a child is open
    return true;
  }
  bool Close() { return stack_.pop_back(), true; }

  size_t max_depth_;
  std::vector<Json*> stack_;
  std::string key_;
};

Error Invalid(std::string what, std::string field) {
  return Error{.code = Code::kInvalidArgument, .what = std::move(what), .field = std::move(field)};
}

}  // namespace

Result<Json> ParseJson(std::string_view text, const JsonLimits& limits) {
  if (text.size() > limits.max_bytes)
    return Error{.code = Code::kTooLarge,
                 .what = "JSON of more than " + std::to_string(limits.max_bytes) + " bytes"};
  if (!IsUtf8(text)) return Invalid("JSON is not valid UTF-8", "");
  StrictSax sax(limits.max_depth);
  if (!Json::sax_parse(text.begin(), text.end(), &sax) || !sax.error.empty())
    return Invalid(sax.error.empty() ? "malformed JSON" : sax.error, "");
  return std::move(sax.root);
}

std::string PrintJson(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

ObjectReader::ObjectReader(const Json& object, std::string path)
    : object_(&object), path_(std::move(path)) {
  if (!object.is_object()) error_ = Invalid("must be an object", path_);
}

std::string ObjectReader::PathOf(const char* name) const {
  return path_.empty() ? name : path_ + "." + name;
}

void ObjectReader::Fail(const char* name, std::string message) {
  if (!error_) error_ = Invalid(PathOf(name) + " " + message, PathOf(name));
}

const Json* ObjectReader::Find(const char* name) {
  known_.emplace_back(name);
  if (error_) return nullptr;
  const auto it = object_->find(name);
  return it == object_->end() || it->is_null() ? nullptr : &*it;
}

const Json* ObjectReader::Member(const char* name) { return Find(name); }

ObjectReader& ObjectReader::String(const char* name, std::string* out, size_t max_bytes) {
  const Json* member = Find(name);
  if (member == nullptr) return *this;
  if (!member->is_string()) return Fail(name, "must be a string"), *this;
  const auto& text = member->get_ref<const std::string&>();
  if (text.size() > max_bytes)
    return Fail(name, "is longer than " + std::to_string(max_bytes) + " bytes"), *this;
  if (text.find('\0') != std::string::npos) return Fail(name, "holds a NUL byte"), *this;
  *out = text;
  return *this;
}

ObjectReader& ObjectReader::Bool(const char* name, bool* out) {
  const Json* member = Find(name);
  if (member == nullptr) return *this;
  if (!member->is_boolean()) return Fail(name, "must be true or false"), *this;
  *out = member->get<bool>();
  return *this;
}

ObjectReader& ObjectReader::Uint(const char* name, uint64_t* out, uint64_t min, uint64_t max) {
  const Json* member = Find(name);
  if (member == nullptr) return *this;
  if (!member->is_number_unsigned()) return Fail(name, "must be a non-negative integer"), *this;
  const auto value = member->get<uint64_t>();
  if (value < min || value > max)
    return Fail(name, "must be between " + std::to_string(min) + " and " + std::to_string(max)),
           *this;
  *out = value;
  return *this;
}

ObjectReader& ObjectReader::Number(const char* name, double* out, double min, double max) {
  const Json* member = Find(name);
  if (member == nullptr) return *this;
  if (!member->is_number()) return Fail(name, "must be a number"), *this;
  const double value = member->get<double>();
  if (!(value >= min && value <= max)) return Fail(name, "is out of range"), *this;
  *out = value;
  return *this;
}

ObjectReader& ObjectReader::Strings(const char* name, std::vector<std::string>* out,
                                    size_t max_count) {
  const Json* member = Find(name);
  if (member == nullptr) return *this;
  if (!member->is_array()) return Fail(name, "must be an array of strings"), *this;
  if (member->size() > max_count)
    return Fail(name, "has more than " + std::to_string(max_count) + " items"), *this;
  std::vector<std::string> values;
  for (const Json& item : *member) {
    if (!item.is_string()) return Fail(name, "must be an array of strings"), *this;
    values.push_back(item.get<std::string>());
    if (values.back().find('\0') != std::string::npos) return Fail(name, "holds a NUL byte"), *this;
  }
  *out = std::move(values);
  return *this;
}

ObjectReader& ObjectReader::StringMap(const char* name, std::map<std::string, std::string>* out,
                                      size_t max_count) {
  const Json* member = Find(name);
  if (member == nullptr) return *this;
  if (!member->is_object()) return Fail(name, "must be an object of strings"), *this;
  if (member->size() > max_count)
    return Fail(name, "has more than " + std::to_string(max_count) + " members"), *this;
  std::map<std::string, std::string> values;
  for (const auto& [key, item] : member->items()) {
    if (!item.is_string()) return Fail(name, "must be an object of strings"), *this;
    const auto& text = item.get_ref<const std::string&>();
    if (text.find('\0') != std::string::npos || key.find('\0') != std::string::npos)
      return Fail(name, "holds a NUL byte"), *this;
    values[key] = text;
  }
  *out = std::move(values);
  return *this;
}

Status ObjectReader::Done(Unknown unknown) {
  if (error_) return *error_;
  if (unknown == Unknown::kRefuse) {
    for (const auto& [key, value] : object_->items()) {
      if (std::find(known_.begin(), known_.end(), key) != known_.end()) continue;
      const std::string field = PathOf(key.c_str());
      return Invalid("unknown field \"" + field + "\"", field);
    }
  }
  return OkStatus();
}

}  // namespace hutch::oci
