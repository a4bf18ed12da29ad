#include "reference/cache/close_groups.h"

#include <algorithm>

#include "reference/spec/token_groups.h"

namespace kvcheck {
namespace {

int64_t Closed(const KvFormat& format, int64_t tokens, const GroupRules& rules) {
  int64_t closed = ClosedTokens(format, tokens);
  if (rules.closed) rules.closed(format, tokens, &closed);
  return closed;
}

}  // namespace

void CloseGroups(TokenPart part, const KvFormat& format, int64_t before,
                 std::span<StoredToken> tokens, const GroupRules& rules, VectorTable* table) {
  if (!GroupsTokens(format)) return;
  const int64_t group = TokenGroupOf(format);
  const auto count = static_cast<int64_t>(tokens.size());
  std::vector<int64_t> groups;
  for (int64_t first = Closed(format, before, rules); first + group <= Closed(format, count, rules);
       first += group) {
    groups.push_back(first);
  }
  if (rules.groups) rules.groups(format, count, &groups);
  const auto handle = [&](int64_t position) -> int32_t& {
    StoredToken& token = tokens[static_cast<size_t>(position)];
    return part == TokenPart::kKey ? token.k : token.v;
  };
  for (const int64_t first : groups) {
    std::vector<int32_t> handles;
    for (int64_t p = first; p < first + group; ++p) handles.push_back(handle(p));
    // What a faulty rule has lost cannot be coded.
    if (std::any_of(handles.begin(), handles.end(), [](int32_t h) { return h < 0; })) continue;
    table->CodeGroup(part, format, handles);
    for (int64_t p = first; p < first + group; ++p) {
      handle(p) = handles[static_cast<size_t>(p - first)];
    }
    if (!rules.coded) continue;
    std::vector<const std::byte*> earlier;
    std::vector<std::byte*> coded;
    for (int64_t p = first; p < first + group; ++p) {
      if (first >= group) earlier.push_back(table->Bytes(handle(p - group)));
      coded.push_back(table->Bytes(handle(p)));
    }
    rules.coded(format, earlier, coded, table->VectorBytes(handle(first)));
  }
}

}  // namespace kvcheck
