"""Small PDFs and Word files, written byte by byte: what the tests of documents and of pages read."""

from __future__ import annotations

import io
import zipfile
from xml.sax.saxutils import escape


def make_pdf(*pages: str) -> bytes:
    """A PDF with these pages of ASCII text, one line below the other."""
    bodies = [b"<< /Type /Catalog /Pages 2 0 R >>", b"", b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>"]
    kids = []
    for page in pages:
        lines = [line.replace("\\", r"\\").replace("(", r"\(").replace(")", r"\)") for line in page.splitlines()]
        stream = ("BT /F1 12 Tf 14 TL 72 720 Td " + " T* ".join(f"({line}) Tj" for line in lines) + " ET").encode()
        bodies.append(b"<< /Length %d >>\nstream\n%s\nendstream" % (len(stream), stream))
        kids.append(len(bodies) + 1)
        bodies.append(
            b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents %d 0 R "
            b"/Resources << /Font << /F1 3 0 R >> >> >>" % len(bodies)
        )
    bodies[1] = b"<< /Type /Pages /Count %d /Kids [%s] >>" % (len(kids), b" ".join(b"%d 0 R" % kid for kid in kids))
    out = io.BytesIO(b"%PDF-1.4\n")
    out.seek(0, io.SEEK_END)
    places = []
    for number, body in enumerate(bodies, start=1):
        places.append(out.tell())
        out.write(b"%d 0 obj\n%s\nendobj\n" % (number, body))
    table = out.tell()
    out.write(b"xref\n0 %d\n0000000000 65535 f \n" % (len(bodies) + 1))
    out.write(b"".join(b"%010d 00000 n \n" % place for place in places))
    out.write(b"trailer\n<< /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n" % (len(bodies) + 1, table))
    return out.getvalue()


def make_docx(*paragraphs: str, before: str = "") -> bytes:
    """A Word file with these paragraphs; `before` stands before its root element, e.g. a DOCTYPE."""
    space = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
    body = "".join(f"<w:p><w:r><w:t>{escape(text)}</w:t></w:r></w:p>" for text in paragraphs)
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr(
            "word/document.xml",
            f'<?xml version="1.0" encoding="UTF-8"?>{before}<w:document xmlns:w="{space}">'
            f"<w:body>{body}</w:body></w:document>",
        )
    return out.getvalue()
