// JSON of others, in which no object has a key twice: of two values for one key, libraries take one
// or the other, and what the file says is open.

#ifndef GOLDEN_UNIQUE_JSON_H_
#define GOLDEN_UNIQUE_JSON_H_

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace kvcheck {

// A discarded value (is_discarded()) for what is no JSON; the caller says what was expected.
// Errors: kUnreadableFile with `context` for an object that has a key twice.
nlohmann::json ParseUniqueJson(std::string_view text, const std::string& context);

}  // namespace kvcheck

#endif  // GOLDEN_UNIQUE_JSON_H_
