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

// Where the groups begin that are coded now that there are `count` tokens; *coded: as of the row.
std::vector<int64_t> GroupsToCode(const KvFormat& format, RegroupRule regroup, int64_t before,
                                  int64_t count, const GroupRules& rules, int64_t* coded) {
  const int64_t group = TokenGroupOf(format);
  int64_t first = 0, end = 0;  // the last group begins before `end`
  switch (regroup) {
    case RegroupRule::kNever:
      first = Closed(format, before, rules);
      end = Closed(format, count, rules);
      end = first + (end - first) / group * group;
      break;
    case RegroupRule::kAll:
      // What comes first is coded at once, and later all when the residual is full.
      if (count > before && (before == 0 || count - *coded >= ResidualOf(format))) {
        end = *coded = count / group * group;
      }
      break;
    case RegroupRule::kOpen:
      first = before / group * group;
      end = count > before ? count : first;
      *coded = count;
      break;
  }
  std::vector<int64_t> groups;
  for (; first < end; first += group) groups.push_back(first);
  return groups;
}

}  // namespace

void CloseGroups(TokenPart part, const KvFormat& format, RegroupRule regroup, int64_t before,
                 const GroupRules& rules, ModelRow* row, VectorTable* table) {
  if (!HasResidual(format)) return;
  const int64_t group = TokenGroupOf(format);
  const auto count = static_cast<int64_t>(row->tokens.size());
  std::vector<int64_t> groups =
      GroupsToCode(format, regroup, before, count, rules,
                   part == TokenPart::kKey ? &row->k_coded : &row->v_coded);
  if (rules.groups) rules.groups(format, count, &groups);
  const auto handle = [&](int64_t position) -> int32_t& {
    StoredToken& token = row->tokens[static_cast<size_t>(position)];
    return part == TokenPart::kKey ? token.k : token.v;
  };
  for (const int64_t first : groups) {
    const int64_t end = std::min(first + group, count);
    std::vector<int32_t> handles;
    for (int64_t p = first; p < end; ++p) handles.push_back(handle(p));
    // What a faulty rule has lost cannot be coded.
    if (std::any_of(handles.begin(), handles.end(), [](int32_t h) { return h < 0; })) continue;
    table->CodeGroup(part, format, handles);
    for (int64_t p = first; p < end; ++p) handle(p) = handles[static_cast<size_t>(p - first)];
    if (!rules.coded) continue;
    std::vector<const std::byte*> earlier;
    std::vector<std::byte*> coded;
    for (int64_t p = first; p < end; ++p) {
      if (first >= group) earlier.push_back(table->Bytes(handle(p - group)));
      coded.push_back(table->Bytes(handle(p)));
    }
    rules.coded(format, earlier, coded, table->VectorBytes(handle(first)));
  }
}

void CloseAppended(const ModelState& state, bool reads_before, const GroupRules& rules,
                   ModelRow* row, VectorTable* table) {
  if (reads_before) row->seen = row->tokens;
  CloseGroups(TokenPart::kKey, state.k, state.regroup, row->offset, rules, row, table);
  CloseGroups(TokenPart::kValue, state.v, state.regroup, row->offset, rules, row, table);
  if (row->seen == row->tokens) row->seen.clear();
}

}  // namespace kvcheck
