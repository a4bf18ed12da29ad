// JSON in which no object has one key twice: readers of JSON keep the first or the last of two, and
// the other would be compared with nothing.

#ifndef GOLDEN_STRICT_JSON_H_
#define GOLDEN_STRICT_JSON_H_

#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace kvcheck {

// Discarded where it is no JSON, or where *twice is set: to the key that an object has twice.
inline nlohmann::json ParseStrictJson(std::string_view text, std::optional<std::string>* twice) {
  using nlohmann::json;
  std::vector<std::set<std::string>> keys;
  const auto look = [&](int, json::parse_event_t event, json& parsed) {
    if (event == json::parse_event_t::object_start) keys.emplace_back();
    if (event == json::parse_event_t::object_end) keys.pop_back();
    if (event == json::parse_event_t::key &&
        !keys.back().insert(parsed.get<std::string>()).second) {
      *twice = parsed.get<std::string>();
    }
    return true;
  };
  const json result = json::parse(text, look, false);
  return twice->has_value() ? json(json::value_t::discarded) : result;
}

}  // namespace kvcheck

#endif  // GOLDEN_STRICT_JSON_H_
