-- Wireshark dissector of MRC (Multipath Reliable Connection) and of what else fabriclab sends to UDP port 4791 that
-- Wireshark's own RoCE dissector does not know: opcodes from 0xC0 up, and packets that a switch trimmed to their headers.
--
--   tshark -X lua_script:mrc.lua -r run.pcapng          or copy this file into Wireshark's folder of personal Lua plugins
--
-- The BTH of a whole packet is left to Wireshark (infiniband.bth.*), so that one filter serves RoCE and MRC; what follows
-- it is named mrc.HEADER.FIELD here (mrc.seth.cack_psn). Which of these numbers are from a third-party reading of the
-- specification: see traffic/packet/mrc_headers.py.

-- tables: made by emulator/report/dissector.py
local OPCODES = {
  [0x00] = {"RC_SEND_FIRST", {}, true},
  [0x01] = {"RC_SEND_MIDDLE", {}, true},
  [0x02] = {"RC_SEND_LAST", {}, true},
  [0x03] = {"RC_SEND_LAST_IMM", {"ImmDt"}, true},
  [0x04] = {"RC_SEND_ONLY", {}, true},
  [0x05] = {"RC_SEND_ONLY_IMM", {"ImmDt"}, true},
  [0x06] = {"RC_WRITE_FIRST", {"RETH"}, true},
  [0x07] = {"RC_WRITE_MIDDLE", {}, true},
  [0x08] = {"RC_WRITE_LAST", {}, true},
  [0x09] = {"RC_WRITE_LAST_IMM", {"ImmDt"}, true},
  [0x0A] = {"RC_WRITE_ONLY", {"RETH"}, true},
  [0x0B] = {"RC_WRITE_ONLY_IMM", {"RETH", "ImmDt"}, true},
  [0x0C] = {"RC_READ_REQUEST", {"RETH"}, false},
  [0x0D] = {"RC_READ_RESPONSE_FIRST", {"AETH"}, true},
  [0x0E] = {"RC_READ_RESPONSE_MIDDLE", {}, true},
  [0x0F] = {"RC_READ_RESPONSE_LAST", {"AETH"}, true},
  [0x10] = {"RC_READ_RESPONSE_ONLY", {"AETH"}, true},
  [0x11] = {"RC_ACKNOWLEDGE", {"AETH"}, false},
  [0x12] = {"RC_ATOMIC_ACKNOWLEDGE", {"AETH", "AtomicAckETH"}, false},
  [0x13] = {"RC_COMPARE_SWAP", {"AtomicETH"}, false},
  [0x14] = {"RC_FETCH_ADD", {"AtomicETH"}, false},
  [0x16] = {"RC_SEND_LAST_INV", {"IETH"}, true},
  [0x17] = {"RC_SEND_ONLY_INV", {"IETH"}, true},
  [0x1C] = {"RC_FLUSH", {"FETH", "RETH"}, false},
  [0x1D] = {"RC_ATOMIC_WRITE", {"RETH"}, true},
  [0x20] = {"UC_SEND_FIRST", {}, true},
  [0x21] = {"UC_SEND_MIDDLE", {}, true},
  [0x22] = {"UC_SEND_LAST", {}, true},
  [0x23] = {"UC_SEND_LAST_IMM", {"ImmDt"}, true},
  [0x24] = {"UC_SEND_ONLY", {}, true},
  [0x25] = {"UC_SEND_ONLY_IMM", {"ImmDt"}, true},
  [0x26] = {"UC_WRITE_FIRST", {"RETH"}, true},
  [0x27] = {"UC_WRITE_MIDDLE", {}, true},
  [0x28] = {"UC_WRITE_LAST", {}, true},
  [0x29] = {"UC_WRITE_LAST_IMM", {"ImmDt"}, true},
  [0x2A] = {"UC_WRITE_ONLY", {"RETH"}, true},
  [0x2B] = {"UC_WRITE_ONLY_IMM", {"RETH", "ImmDt"}, true},
  [0x64] = {"UD_SEND_ONLY", {"DETH"}, true},
  [0x65] = {"UD_SEND_ONLY_IMM", {"DETH", "ImmDt"}, true},
  [0x81] = {"CNP", {"CNP"}, false},
  [0xC6] = {"MRC_WRITE_FIRST", {"METH", "RETH"}, true},
  [0xC7] = {"MRC_WRITE_MIDDLE", {"METH", "RETH"}, true},
  [0xC8] = {"MRC_WRITE_LAST", {"METH", "RETH"}, true},
  [0xC9] = {"MRC_WRITE_LAST_IMM", {"METH", "RETH", "ImmDt"}, true},
  [0xCA] = {"MRC_WRITE_ONLY", {"METH", "RETH"}, true},
  [0xCB] = {"MRC_WRITE_ONLY_IMM", {"METH", "RETH", "ImmDt"}, true},
  [0xD1] = {"MRC_ACKNOWLEDGE", {"AETH"}, false},
  [0xD8] = {"MRC_ENDPOINT_REQUEST", {"ERTH"}, false},
  [0xD9] = {"MRC_ENDPOINT_RESPONSE", {"EETH"}, false},
  [0xDC] = {"MRC_SACK", {"SETH"}, false},
  [0xDD] = {"MRC_NACK", {"NETH"}, false},
  [0xDE] = {"MRC_PROBE", {"PETH"}, false},
  [0xE0] = {"CREDIT", {"CRETH"}, false},
}
local HEADERS = {
  RETH = {
    {"va", 64, "hex", "virtual address at the receiver"},
    {"rkey", 32, "hex", "key of the memory region"},
    {"length", 32, "dec", "bytes of the whole message"},
  },
  AtomicETH = {
    {"va", 64, "hex", "virtual address of the 8-byte word"},
    {"rkey", 32, "hex", "key of the memory region"},
    {"swap_add", 64, "hex", "new value, or what to add"},
    {"compare", 64, "hex", "value expected there (COMPARE SWAP)"},
  },
  AtomicAckETH = {
    {"value", 64, "hex", "what was there before"},
  },
  AETH = {
    {"syndrome", 8, "hex", "ACK, RNR NAK or NAK, and its code"},
    {"msn", 24, "dec", "messages completed, modulo 2^24"},
  },
  DETH = {
    {"qkey", 32, "hex", "queue key: 0x80010000 for QP 1"},
    {"reserved", 8, "skip", "reserved, zero"},
    {"src_qpn", 24, "hex", "sender's queue pair"},
  },
  ImmDt = {
    {"value", 32, "hex", "immediate data, opaque to the transport"},
  },
  IETH = {
    {"rkey", 32, "hex", "key to take away"},
  },
  FETH = {
    {"reserved", 26, "skip", "reserved, zero"},
    {"selectivity", 2, "dec", "0 the range, 1 the memory region"},
    {"placement", 4, "dec", "1 global visibility, 2 persistence"},
  },
  CNP = {
    {"reserved1", 64, "skip", "reserved, zero"},
    {"reserved2", 64, "skip", "reserved, zero"},
  },
  CRETH = {
    {"grant", 1, "dec", "0 asks for credit, 1 gives it (own header: no standard has one for RC)"},
    {"reserved", 7, "skip", "reserved, zero"},
    {"total", 24, "dec", "total credit since the start, in 256 bytes"},
  },
  METH = {
    {"rqmsn", 16, "dec", "receive-queue message number"},
    {"msn", 16, "dec", "message number"},
  },
  TSETH = {
    {"timestamp", 16, "dec", "sender's clock, modulo 2^16"},
    {"tsr", 1, "dec", "timestamp response wanted"},
    {"reserved", 11, "skip", "reserved, zero"},
    {"ftype", 4, "dec", "format"},
  },
  SETH = {
    {"type", 4, "skip", "reserved, zero"},
    {"nxt", 5, "skip", "reserved, zero"},
    {"m", 2, "dec", "entropy value: 0 good, 1 skip once, 2 always skip"},
    {"reserved1", 3, "skip", "reserved, zero"},
    {"probe", 1, "dec", "answers a probe"},
    {"reserved2", 1, "skip", "reserved, zero"},
    {"ack_psn_offset", 16, "signed", "PSN that caused this SACK, from cack_psn"},
    {"entropy", 32, "hex", "entropy value of that packet, echoed"},
    {"spdcid", 16, "dec", "source delivery context"},
    {"dpdcid", 16, "dec", "destination delivery context"},
    {"reserved3", 8, "skip", "reserved, zero"},
    {"cack_psn", 24, "dec", "cumulative acknowledgement"},
    {"cc_type", 4, "dec", "layout of the congestion state"},
    {"cc_flags", 4, "dec", "congestion flags"},
    {"mpr", 8, "dec", "maximum PSN range, in 128 PSNs"},
    {"sack_offset", 16, "signed", "PSN of bitmap bit 0, from cack_psn"},
    {"bitmap", 64, "hex", "1: arrived; 0: no information"},
    {"timestamp", 16, "dec", "CC_STATE: timestamp echoed"},
    {"reserved4", 1, "skip", "reserved, zero"},
    {"ooo_count", 15, "dec", "CC_STATE: packets out of order"},
    {"restore", 1, "dec", "CC_STATE: restore the window"},
    {"rcv_cwnd_pen", 7, "dec", "CC_STATE: receiver's penalty, 127 is one packet a round trip"},
    {"rcvd_bytes", 24, "dec", "CC_STATE: bytes received, in 256 bytes"},
  },
  NETH = {
    {"type", 4, "skip", "reserved, zero"},
    {"nxt", 5, "skip", "reserved, zero"},
    {"reserved1", 7, "skip", "reserved, zero"},
    {"reason", 8, "hex", "why the packet was refused"},
    {"vendor", 8, "dec", "vendor's own"},
    {"entropy", 32, "hex", "entropy value of that packet, echoed"},
    {"spdcid", 16, "dec", "source delivery context"},
    {"dpdcid", 16, "dec", "destination delivery context"},
    {"reserved2", 8, "skip", "reserved, zero"},
    {"nack_psn", 24, "dec", "PSN refused"},
    {"cc_type", 4, "dec", "layout of the congestion state"},
    {"cc_flags", 4, "dec", "congestion flags"},
    {"reserved3", 8, "skip", "reserved, zero"},
    {"timestamp", 16, "dec", "timestamp echoed"},
  },
  PETH = {
    {"type", 4, "skip", "reserved, zero"},
    {"nxt", 5, "skip", "reserved, zero"},
    {"reserved1", 7, "skip", "reserved, zero"},
    {"reserved2", 8, "skip", "reserved, zero"},
    {"vendor", 8, "dec", "vendor's own"},
    {"probe_id", 16, "dec", "number of the probe"},
    {"reserved3", 16, "skip", "reserved, zero"},
    {"spdcid", 16, "dec", "source delivery context"},
    {"dpdcid", 16, "dec", "destination delivery context"},
    {"timestamp", 16, "dec", "sender's clock, modulo 2^16"},
    {"tsr", 1, "dec", "timestamp response wanted"},
    {"reserved4", 11, "skip", "reserved, zero"},
    {"ftype", 4, "dec", "format"},
  },
  ERTH = {
    {"type", 4, "skip", "reserved, zero"},
    {"nxt", 5, "skip", "reserved, zero"},
    {"reserved1", 5, "skip", "reserved, zero"},
    {"op", 2, "dec", "0 port status, 1 entropy value probe"},
    {"reserved2", 8, "skip", "reserved, zero"},
    {"vendor", 8, "dec", "vendor's own"},
    {"port_mask", 32, "hex", "one bit a port of the sender"},
    {"reserved3", 32, "skip", "reserved, zero"},
    {"timestamp", 16, "dec", "sender's clock, modulo 2^16"},
    {"tsr", 1, "dec", "timestamp response wanted"},
    {"reserved4", 11, "skip", "reserved, zero"},
    {"ftype", 4, "dec", "format"},
  },
  EETH = {
    {"type", 4, "skip", "reserved, zero"},
    {"nxt", 5, "skip", "reserved, zero"},
    {"reserved1", 1, "skip", "reserved, zero"},
    {"op", 2, "dec", "0 port status, 1 entropy value probe"},
    {"reserved2", 4, "skip", "reserved, zero"},
    {"reserved3", 16, "skip", "reserved, zero"},
    {"reserved4", 192, "skip", "reserved, zero"},
    {"timestamp", 16, "dec", "timestamp echoed"},
    {"reserved5", 16, "skip", "reserved, zero"},
    {"reserved6", 32, "skip", "reserved, zero"},
  },
}
local VALUES = {
  ["NETH.reason"] = {[1] = "TRIMMED", [2] = "TRIMMED_LAST_HOP", [6] = "NO_BITMAP", [7] = "NO_PKT_BUFFER", [10] = "NO_RESOURCE", [11] = "PSN_OOR_WINDOW", [25] = "UNEXP_EVENT"},
  ["SETH.m"] = {[0] = "NONE", [1] = "SKIP_ONCE", [2] = "ALWAYS_SKIP"},
  ["ERTH.op"] = {[0] = "PORT_STATUS", [1] = "EV_PROBE"},
  ["EETH.op"] = {[0] = "PORT_STATUS", [1] = "EV_PROBE"},
}
-- end of tables

local PORT = 4791
local FIRST = 0xC0
local BTH, ICRC = 12, 4
local FLAG_RTX, FLAG_TS = 0x20, 0x10
local TRIMMED = {[46] = "trimmed to its headers at a core port", [47] = "trimmed to its headers at the last hop"}

local mrc = Proto("mrc", "Multipath Reliable Connection")
local dscp_of = Field.new("ip.dsfield.dscp")
local dscp6_of = Field.new("ipv6.tclass.dscp")

local OPCODE_NAMES = {}
for number, entry in pairs(OPCODES) do OPCODE_NAMES[number] = entry[1] end

local bth = {
  opcode = ProtoField.uint8("mrc.opcode", "Opcode", base.HEX, OPCODE_NAMES),
  rtx = ProtoField.bool("mrc.rtx", "Retransmission", 8, nil, FLAG_RTX),
  ts = ProtoField.bool("mrc.ts", "TSETH follows", 8, nil, FLAG_TS),
  dqpn = ProtoField.uint24("mrc.dqpn", "Destination queue pair", base.HEX),
  psn = ProtoField.uint24("mrc.psn", "Packet sequence number", base.DEC),
  trimmed = ProtoField.string("mrc.trimmed", "Trimmed"),
  payload = ProtoField.bytes("mrc.payload", "Payload"),
  icrc = ProtoField.uint32("mrc.icrc", "Invariant CRC", base.HEX),
}
local known = {}
for _, field in pairs(bth) do known[#known + 1] = field end

-- One ProtoField a table row; a field of a whole number of bits is shown by value, not by mask.
local fields = {}
local sizes = {}
for header, rows in pairs(HEADERS) do
  local bits = 0
  for _, row in ipairs(rows) do
    local name, width, style, meaning = row[1], row[2], row[3], row[4]
    local key = header .. "." .. name
    if style ~= "skip" then
      local abbreviation = "mrc." .. string.lower(key)
      local label = header .. " " .. name
      local values = VALUES[key]
      if style == "signed" then
        fields[key] = ProtoField.int16(abbreviation, label, base.DEC, nil, nil, meaning)
      elseif width > 32 then
        fields[key] = ProtoField.uint64(abbreviation, label, style == "hex" and base.HEX or base.DEC, nil, nil, meaning)
      else
        fields[key] = ProtoField.uint32(abbreviation, label, style == "hex" and base.HEX or base.DEC, values, nil, meaning)
      end
      known[#known + 1] = fields[key]
    end
    bits = bits + width
  end
  sizes[header] = bits / 8
end
mrc.fields = known

local cut = ProtoExpert.new("mrc.cut", "Headers cut short", expert.group.MALFORMED, expert.severity.ERROR)
mrc.experts = {cut}

-- Puts one extension header into the tree; the values by name.
local function add_header(tree, tvb, offset, header)
  local found = {}
  local branch = tree:add(mrc, tvb(offset, sizes[header]), header)
  local bit = 0
  for _, row in ipairs(HEADERS[header]) do
    local name, width, style = row[1], row[2], row[3]
    if style ~= "skip" then
      local from, to = math.floor(bit / 8), math.floor((bit + width - 1) / 8)
      local value = tvb(offset + from, to - from + 1):bitfield(bit % 8, width)
      if style == "signed" and value >= 0x8000 then value = value - 0x10000 end
      branch:add(fields[header .. "." .. name], tvb(offset + from, to - from + 1), value)
      found[name] = value
    end
    bit = bit + width
  end
  return found
end

local function told(header, v)
  if header == "SETH" then
    return string.format("cack=%d causes=%+d bits=%s ev=0x%x%s", v.cack_psn, v.ack_psn_offset, tostring(v.bitmap:tohex()),
      v.entropy, v.probe == 1 and " answers a probe" or "")
  elseif header == "NETH" then
    return string.format("psn=%d %s ev=0x%x", v.nack_psn, VALUES["NETH.reason"][v.reason] or tostring(v.reason), v.entropy)
  elseif header == "METH" then
    return string.format("msn=%d", v.msn)
  elseif header == "PETH" then
    return string.format("probe=%d", v.probe_id)
  elseif header == "CRETH" then
    return string.format("%s %d", v.grant == 1 and "grants" or "asks for", v.total)
  elseif header == "ERTH" then
    return VALUES["ERTH.op"][v.op] or ""
  elseif header == "EETH" then
    return VALUES["EETH.op"][v.op] or ""
  end
  return ""
end

local roce = DissectorTable.get("udp.port"):get_dissector(PORT)

local function trimmed_here()
  local found = dscp_of() or dscp6_of()
  return found and TRIMMED[found.value]
end

function mrc.dissector(tvb, pinfo, root)
  local length = tvb:reported_length_remaining()
  if tvb:len() < BTH then return roce and roce:call(tvb, pinfo, root) or 0 end
  local opcode = tvb(0, 1):uint()
  local trim = trimmed_here()
  if opcode < FIRST and not trim then return roce and roce:call(tvb, pinfo, root) or 0 end
  if not trim and roce then roce:call(tvb, pinfo, root) end

  local entry = OPCODES[opcode] or {string.format("opcode 0x%02x", opcode), {}, true}
  local mine = opcode >= FIRST and opcode < 0xE0
  local flags = tvb(8, 1):uint()
  local psn, dqpn = tvb(9, 3):uint(), tvb(5, 3):uint()
  local tree = root:add(mrc, tvb())
  tree:append_text(": " .. entry[1])
  tree:add(bth.opcode, tvb(0, 1))
  tree:add(bth.dqpn, tvb(5, 3))
  tree:add(bth.psn, tvb(9, 3))
  if mine then
    tree:add(bth.rtx, tvb(8, 1))
    tree:add(bth.ts, tvb(8, 1))
  end
  if trim then tree:add(bth.trimmed, tvb(0, 0), trim) end

  local words = {}
  local offset = BTH
  local headers = {}
  for _, header in ipairs(entry[2]) do
    headers[#headers + 1] = header
    if header == "METH" and flags % (2 * FLAG_TS) >= FLAG_TS then headers[#headers + 1] = "TSETH" end
  end
  for _, header in ipairs(headers) do
    if offset + sizes[header] > tvb:len() then
      if length == tvb:len() then tree:add_proto_expert_info(cut) end
      offset = tvb:len()
      break
    end
    local text = told(header, add_header(tree, tvb, offset, header))
    if text ~= "" then words[#words + 1] = text end
    offset = offset + sizes[header]
  end
  local tail = trim and length or length - ICRC
  local payload = math.min(tail, tvb:len()) - offset
  if payload > 0 then tree:add(bth.payload, tvb(offset, payload)) end
  if not trim and length == tvb:len() and length - ICRC >= offset then tree:add(bth.icrc, tvb(length - ICRC, ICRC)) end

  pinfo.cols.protocol = mine and "MRC" or (opcode >= FIRST and "CREDIT" or "RRoCE")
  pinfo.cols.info = string.format("%s QP=0x%06x PSN=%d%s%s%s%s", entry[1], dqpn, psn,
    #words > 0 and " " .. table.concat(words, " ") or "",
    entry[3] and not trim and string.format(" %d bytes", math.max(0, tail - offset - math.floor(tvb(1, 1):uint() / 16) % 4)) or "",
    mine and flags % (2 * FLAG_RTX) >= FLAG_RTX and " (retransmission)" or "",
    trim and " (" .. trim .. ")" or "")
  return tvb:len()
end

DissectorTable.get("udp.port"):add(PORT, mrc)
