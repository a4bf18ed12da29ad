#include "golden/unique_json.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "golden/safetensors_header.h"
#include "reference/spec/error.h"

namespace kvcheck {

nlohmann::json ParseUniqueJson(std::string_view text, const std::string& context) {
  std::vector<std::set<std::string>> keys;  // of the objects that are open
  const auto on_event = [&](int, nlohmann::json::parse_event_t event, nlohmann::json& value) {
    switch (event) {
      case nlohmann::json::parse_event_t::object_start:
        keys.emplace_back();
        break;
      case nlohmann::json::parse_event_t::object_end:
        keys.pop_back();
        break;
      case nlohmann::json::parse_event_t::key: {
        const auto key = value.get<std::string>();
        if (!keys.back().insert(key).second) {
          throw Error(ErrorCode::kUnreadableFile,
                      fmt::format("an object of its JSON has the key {} twice: which of the two is "
                                  "meant, nothing says",
                                  QuotedName(key)),
                      context);
        }
        break;
      }
      default:
        break;
    }
    return true;
  };
  return nlohmann::json::parse(text.begin(), text.end(), on_event, false);
}

}  // namespace kvcheck
